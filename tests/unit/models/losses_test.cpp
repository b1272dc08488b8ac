// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/models/model.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <functional>
#include <map>

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

TEST(LossesTest, TwoValuesOfOneNameAreRefused) {
  LossMap twice = three_entries();
  twice.emplace_back("acc", torch::tensor(1.0));
  EXPECT_THROW(parse_losses(twice), ConfigError);
  EXPECT_THROW(parse_losses({{"loss", torch::tensor(1.0)}, {"loss_raw", torch::tensor(1.0)}}), ConfigError);
  EXPECT_EQ(host_values(parse_losses({{"loss_raw", torch::tensor(1.0)}})), (Numbers{{"loss", 1}, {"loss_raw", 1}}));
}

TEST(LossesTest, OnlyTheTotalHasAHistory) {
  const at::Tensor weight = torch::tensor({2.0, 4.0}, at::requires_grad());
  const ParsedLosses parsed = parse_losses({{"loss_a", weight}, {"loss_b", weight * weight}});
  parsed.total.backward();
  EXPECT_TRUE(at::equal(weight.grad(), torch::tensor({0.5 + 2, 0.5 + 4})));
  for (const auto& [name, value] : parsed.values) EXPECT_FALSE(value.requires_grad()) << name;
}

TEST(LossesTest, AMapIsTheSumOfItsMeansAndStatesEach) {
  const std::map<std::string, at::Tensor> levels = {{"p3", torch::tensor({1.0, 3.0})}, {"p4", torch::tensor(5.0)}};
  const ParsedLosses parsed = parse_losses({{"loss_box", levels}, {"loss_class", torch::tensor(1.0)}});
  EXPECT_EQ(host_values(parsed),
            (Numbers{{"loss", 8}, {"loss_box", 7}, {"loss_box/p3", 2}, {"loss_box/p4", 5}, {"loss_class", 1}}));
  EXPECT_EQ(host_values(parse_losses({{"loss", levels}})), (Numbers{{"loss", 7}, {"loss/p3", 2}, {"loss/p4", 5}}));
}

// A value that is told stays unweighted; a loss over no items, which is NaN, adds neither a value nor a gradient.
TEST(LossesTest, WeightsByNameMakeTheTotal) {
  const at::Tensor weight = torch::tensor({2.0, 4.0}, at::TensorOptions(at::kDouble).requires_grad(true));
  const at::Tensor over_nothing = cross_entropy(weight.view({1, 2}), torch::tensor({-100L}));
  EXPECT_TRUE(over_nothing.isnan().item<bool>());
  LossWeights weights = 0.5;
  weights.by_name = {{"loss_a", 3}, {"loss_none", 0}};
  const ParsedLosses parsed = parse_losses({{"loss_a", weight[0]}, {"loss_b", weight[1]}, {"loss_none", over_nothing}},
                                           LossSum::named, weights);
  EXPECT_EQ(parsed.total.item<double>(), 3 * 2 + 0.5 * 4);
  EXPECT_EQ(weights.of_total(), 1);
  parsed.total.backward();
  EXPECT_TRUE(at::equal(weight.grad(), torch::tensor({3.0, 0.5}, at::kDouble)));
  EXPECT_EQ(host_values(parsed)[1], (std::pair<std::string, double>("loss_a", 2)));
  EXPECT_EQ(LossWeights(0.25).of_total(), 0.25);
  try {
    parse_losses({{"loss", weight.sum()}}, LossSum::named, weights);
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "the model counts items of 'loss_a', but returned no loss with this name");
  }
}

TEST(LossesTest, SaysWhatIsMissing) {
  EXPECT_EQ(refusal({}), "the model returned no entry with a name that contains \"loss\"");
  EXPECT_EQ(refusal({{"acc", torch::tensor(1.0)}}), "the model returned no entry with a name that contains \"loss\"");
  EXPECT_EQ(refusal(three_entries(), LossSum::main), "the model returned no entry called \"loss\"");
  EXPECT_EQ(refusal({{"loss_a", at::Tensor()}}), "the loss of the model 'loss_a' is not a tensor");
  EXPECT_EQ(refusal({{"loss_a", std::vector<at::Tensor>()}}), "the loss of the model 'loss_a' is an empty list");
}

}  // namespace losses_test
}  // namespace lockstep::models
