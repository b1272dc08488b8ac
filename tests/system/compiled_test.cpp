// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace compiled_test {

using testing::ProgramResult;

constexpr const char* kReason = "run.cuda_graphs: steps are not captured, because ";

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t position = text.find(part); position != std::string::npos; position = text.find(part, position + 1))
    ++count;
  return count;
}

TEST(CompiledRunTest, TrainsEagerlyOnCpusAndStatesTheReasonOnce) {
  const testing::TemporaryFolder folder;
  const std::string common =
      "--run.device=cpu --data.train_size=120 --data.val_size=20 --model.name=mlp "
      "--train.max_steps=4 --log.every=1 --run.dir=";
  const ProgramResult eager = testing::run_ranks(2, common + folder.path("eager"));
  const ProgramResult compiled = testing::run_ranks(2, common + folder.path("compiled") + " --run.cuda_graphs=true");
  ASSERT_EQ(eager.exit_code, 0) << eager.output;
  ASSERT_EQ(compiled.exit_code, 0) << compiled.output;
  EXPECT_EQ(count_of(eager.output, "run.cuda_graphs"), 0U) << eager.output;
  EXPECT_EQ(count_of(compiled.output, std::string(kReason) + "CUDA graphs require a GPU (run.device)"), 1U)
      << compiled.output;
  EXPECT_EQ(count_of(compiled.output, kReason), 1U);
  EXPECT_EQ(report::read_series(folder.path("compiled/metrics.jsonl"), "loss"),
            report::read_series(folder.path("eager/metrics.jsonl"), "loss"));
}

}  // namespace compiled_test
}  // namespace lockstep
