// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>

namespace lockstep::models {
namespace losses_test {

using Numbers = std::vector<std::pair<std::string, double>>;

/// strategy.md 5.2: a mean of 2, a list of means 1 and 3, and what is only logged.
LossMap three_entries() {
  return {{"loss_cls", torch::tensor({1.0, 3.0})},
          {"loss_list", std::vector<at::Tensor>{torch::tensor({0.0, 2.0}), torch::tensor(3.0)}},
          {"acc", torch::tensor({0.25, 0.75})}};
}

std::string refusal(const LossMap& losses, LossSum sum = LossSum::named) {
  try {
    parse_losses(losses, sum);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LossesTest, TensorsAreMeansAndListsSumsOfMeans) {
  const ParsedLosses parsed = parse_losses(three_entries());
  EXPECT_EQ(parsed.total.item<double>(), 6);
  EXPECT_EQ(host_values(parsed), (Numbers{{"loss", 6}, {"loss_cls", 2}, {"loss_list", 4}, {"acc", 0.5}}));
  EXPECT_EQ(total_loss(three_entries()).item<double>(), 6);
}

TEST(LossesTest, WhatIsTrainedGoesByTheSum) {
  EXPECT_EQ(parse_losses(three_entries(), LossSum::all).total.item<double>(), 6.5);
  LossMap with_main = three_entries();
  with_main.emplace_back("loss", torch::tensor(7.0));
  EXPECT_EQ(parse_losses(with_main, LossSum::main).total.item<double>(), 7);
  EXPECT_EQ(host_values(parse_losses(with_main, LossSum::main)),
            (Numbers{{"loss", 7}, {"loss_cls", 2}, {"loss_list", 4}, {"acc", 0.5}}));
  EXPECT_EQ(host_values(parse_losses(with_main)),
            (Numbers{{"loss", 13}, {"loss_cls", 2}, {"loss_list", 4}, {"acc", 0.5}, {"loss_raw", 7}}));
  EXPECT_EQ(host_values(parse_losses({{"loss", torch::tensor(7.0)}})), (Numbers{{"loss", 7}}));
}

TEST(LossesTest, OnlyTheTotalHasAHistory) {
  const at::Tensor weight = torch::tensor({2.0, 4.0}, at::requires_grad());
  const ParsedLosses parsed = parse_losses({{"loss_a", weight}, {"loss_b", weight * weight}});
  parsed.total.backward();
  EXPECT_TRUE(at::equal(weight.grad(), torch::tensor({0.5 + 2, 0.5 + 4})));
  for (const auto& [name, value] : parsed.values) EXPECT_FALSE(value.requires_grad()) << name;
}

TEST(LossesTest, SaysWhatIsMissing) {
  EXPECT_EQ(refusal({}), "the model returned no entry whose name contains \"loss\"");
  EXPECT_EQ(refusal({{"acc", torch::tensor(1.0)}}), "the model returned no entry whose name contains \"loss\"");
  EXPECT_EQ(refusal(three_entries(), LossSum::main), "the model returned no entry called \"loss\"");
  EXPECT_EQ(refusal({{"loss_a", at::Tensor()}}), "the model's loss 'loss_a' is not a tensor");
  EXPECT_EQ(refusal({{"loss_a", std::vector<at::Tensor>()}}), "the model's loss 'loss_a' is an empty list");
}

}  // namespace losses_test
}  // namespace lockstep::models
