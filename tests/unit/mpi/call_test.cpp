// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "mpi/shared/job.hpp"

namespace lockstep::mpi {
namespace call_test {

const Call kReduction{
    .sequence = 17, .count = 1000, .kind = CallKind::all_reduce, .op = ReduceOp::average, .dtype = DType::float32};

std::string disagreement_of(const std::vector<Call>& calls) {
  std::vector<int> ranks(calls.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return disagreement(ranks, [&calls](int rank) -> const Call& { return calls[rank]; });
}

TEST(CallTest, IsDescribedWithItsArguments) {
  EXPECT_EQ(describe(kReduction), "all_reduce #17 of 1000 float32 (average)");
  EXPECT_EQ(describe({.sequence = 2, .count = 8, .root = 3, .kind = CallKind::broadcast}),
            "broadcast #2 of 8 bytes from rank 3");
  EXPECT_EQ(describe({.sequence = 1, .count = 8, .kind = CallKind::all_gather}), "all_gather #1 of 8 bytes");
  EXPECT_EQ(describe({.sequence = 9}), "barrier #9");
}

TEST(CallTest, DisagreementNamesBothSides) {
  EXPECT_EQ(disagreement_of({kReduction}), "");
  EXPECT_EQ(disagreement_of({kReduction, kReduction, kReduction}), "");
  Call other = kReduction;
  other.count = 999;
  EXPECT_EQ(
      disagreement_of({kReduction, kReduction, other}),
      "the ranks call different operations: rank 0 called all_reduce #17 of 1000 float32 (average), rank 2 called "
      "all_reduce #17 of 999 float32 (average)");
}

TEST(CallTest, EveryFieldCounts) {
  std::vector<Call> others(6, kReduction);
  others[0].sequence = 18;
  others[1].count = 1;
  others[2].root = 1;
  others[3].kind = CallKind::reduce_scatter;
  others[4].op = ReduceOp::sum;
  others[5].dtype = DType::float64;
  for (const Call& other : others) EXPECT_NE(disagreement_of({kReduction, other}), "");
}

TEST(CallTest, LatenessSaysWhoWaitsForWhomInWhat) {
  EXPECT_EQ(lateness(2, 0.52, kReduction, "rank 1"),
            "rank 2 waited 0.5 s in all_reduce #17 of 1000 float32 (average) for rank 1; raise comm.timeout_s if ranks "
            "can be this far apart");
}

}  // namespace call_test
}  // namespace lockstep::mpi
