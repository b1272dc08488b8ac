// SPDX-License-Identifier: BSD-3-Clause
// Runs a test program on every rank. Rank 0 prints as usual, the others print their failures with their rank, and all
// ranks exit with the worst verdict of any.
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "support/sampling.hpp"
#include "support/verdict.hpp"

namespace {

class FailuresOnly : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}

  void OnTestStart(const ::testing::TestInfo& test) override {
    name_ = std::string(test.test_suite_name()) + "." + test.name();
  }

  /// GoogleTest holds its lock meanwhile: asking it for the current test would wait forever.
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d] %s %s:%d\n%s\n", rank_, name_.c_str(),
                 result.file_name() != nullptr ? result.file_name() : "", result.line_number(), result.message());
  }

 private:
  int rank_;
  std::string name_;
};

}  // namespace

int main(int argc, char** argv) {
  setenv("OMPI_MCA_pml", "ob1", 0);
  int provided = 0;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return 1;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ::testing::InitGoogleTest(&argc, argv);
  lockstep::testing::draw_cases(::testing::UnitTest::GetInstance()->total_test_count());
  if (rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(rank));
  }
  const int mine = lockstep::testing::verdict(RUN_ALL_TESTS() == 0);
  int failed = mine == lockstep::testing::kFailed ? 1 : 0;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  std::fflush(nullptr);
  _exit(failed != 0 ? lockstep::testing::kFailed : mine);
}
