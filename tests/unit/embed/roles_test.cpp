// SPDX-License-Identifier: BSD-3-Clause
// Who sends to whom, and what is sent.
#include "embed/roles.hpp"

#include <gtest/gtest.h>
#include <torch/types.h>

#include "embed/letters.hpp"

namespace lockstep::embed {
namespace roles_test {

using Ranks = std::vector<int>;

TEST(RolesTest, ProducersSendToTrainersOfTheirHostInTurn) {
  // Two hosts: trainers are ranks 0 and 1 on host 0, and 5 on host 1.
  const RankRoles roles{.is_producer = {false, false, true, true, true, false, true, true},
                        .host_of_rank = {0, 0, 0, 0, 0, 1, 1, 1}};
  EXPECT_EQ(roles.receivers(/*by_host=*/true), (Ranks{-1, -1, 0, 1, 0, -1, 5, 5}));
  EXPECT_EQ(roles.receivers(/*by_host=*/false), (Ranks{-1, -1, 0, 1, 5, -1, 0, 1}));
}

TEST(RolesTest, ProducersOfAHostWithoutTrainersSendAnywhereInTurn) {
  const RankRoles roles{.is_producer = {true, true, true, false, false}, .host_of_rank = {0, 0, 0, 1, 1}};
  EXPECT_EQ(roles.receivers(/*by_host=*/true), (Ranks{3, 4, 3, -1, -1}));
  EXPECT_FALSE((RankRoles{.is_producer = {false, false}}).has_producers());
}

TEST(LetterTest, ComesBackAsItWas) {
  const at::Tensor columns = at::arange(24, at::kDouble).view({4, 6}).t().narrow(0, 1, 3);  // strided
  const Letter sent{.number = -7,
                    .text = "rank 3 says: \xc3\xa9",
                    .tensors = {{"input", columns},
                                {"mask", at::tensor({1, 0, 1}, at::kByte)},
                                {"none", at::zeros({0, 5})},
                                {"half", at::ones({2}, at::kBFloat16)}}};
  Letter got = unpacked(*packed(sent));
  EXPECT_EQ(got.number, sent.number);
  EXPECT_EQ(got.text, sent.text);
  ASSERT_EQ(got.tensors.size(), sent.tensors.size());
  for (std::size_t i = 0; i < sent.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].first, sent.tensors[i].first);
    EXPECT_EQ(got.tensors[i].second.scalar_type(), sent.tensors[i].second.scalar_type());
    EXPECT_TRUE(at::equal(got.tensors[i].second, sent.tensors[i].second)) << sent.tensors[i].first;
  }
  EXPECT_EQ(bytes_of(sent.tensors), 12 * 8 + 3 + 0 + 2 * 2);
}

}  // namespace roles_test
}  // namespace lockstep::embed
