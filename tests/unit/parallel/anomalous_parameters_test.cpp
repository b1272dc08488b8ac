// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include "parallel/reducers/autograd_graph.hpp"

namespace lockstep::parallel {
namespace anomalous_parameters_test {

using Names = std::vector<std::string>;

std::vector<NamedParameter> parameters_called(const Names& names) {
  std::vector<NamedParameter> parameters;
  for (const std::string& name : names) parameters.push_back({name, torch::ones({2}).requires_grad_()});
  return parameters;
}

TEST(AnomalousParametersTest, WhatIsUnusedOrDoesNotReachTheLossIsNamed) {
  const auto parameters = parameters_called({"conv1", "conv2", "conv3"});
  const at::Tensor first = parameters[0].tensor * 2;
  const at::Tensor second = first * parameters[1].tensor;
  EXPECT_EQ(anomalous_parameters({first.sum()}, parameters), (Names{"conv2", "conv3"}));
  EXPECT_EQ(anomalous_parameters({second.sum()}, parameters), Names{"conv3"});
}

TEST(AnomalousParametersTest, FrozenOnesAreNot) {
  auto parameters = parameters_called({"conv1", "conv2"});
  parameters[1].tensor.requires_grad_(false);
  EXPECT_EQ(anomalous_parameters({parameters[0].tensor.sum()}, parameters), Names{});
}

TEST(AnomalousParametersTest, BackwardChangesNothing) {
  const auto parameters = parameters_called({"conv1", "conv2"});
  const at::Tensor loss = parameters[0].tensor.square().sum();
  loss.backward();
  EXPECT_EQ(anomalous_parameters({loss}, parameters), Names{"conv2"});
}

TEST(AnomalousParametersTest, ALossWithoutHistoryReachesNothing) {
  const auto parameters = parameters_called({"conv1", "conv2"});
  const at::Tensor unrelated = parameters[0].tensor.sum();  // keeps an accumulator alive
  for (const at::Tensor& loss : {torch::ones({}).requires_grad_(), torch::ones({}), at::Tensor()}) {
    EXPECT_EQ(anomalous_parameters({loss}, parameters), (Names{"conv1", "conv2"}));
  }
}

TEST(AnomalousParametersTest, SeveralLossesCountTogether) {
  const auto parameters = parameters_called({"conv1", "conv2", "conv3"});
  const std::vector<at::Tensor> losses = {parameters[0].tensor.sum(), parameters[2].tensor.sum()};
  EXPECT_EQ(anomalous_parameters(losses, parameters), Names{"conv2"});
}

/// A node with one input and one output.
struct Link : torch::autograd::Node {
  using Node::Node;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

TEST(AnomalousParametersTest, GraphsMayBeAMillionNodesDeep) {
  const auto parameters = parameters_called({"conv1", "conv2"});
  torch::autograd::edge_list next = torch::autograd::collect_next_edges(parameters[0].tensor);
  std::shared_ptr<Link> last;
  for (int i = 0; i < 1000000; ++i) {
    last = std::shared_ptr<Link>(new Link(std::move(next)), torch::autograd::deleteNode);
    next = {torch::autograd::Edge(last, 0)};
  }
  next.clear();
  const at::Tensor loss = torch::ones({});
  torch::autograd::set_history(loss, last);
  last.reset();
  EXPECT_EQ(anomalous_parameters({loss}, parameters), Names{"conv2"});
}

}  // namespace anomalous_parameters_test
}  // namespace lockstep::parallel
