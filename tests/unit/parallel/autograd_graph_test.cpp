// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/autograd_graph.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::parallel {
namespace autograd_graph_test {

double seconds_of(const auto& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// A graph of `nodes` nodes above the leaf's accumulator, one after the other. Tensors are small, so that a backward
/// takes hardly more than what autograd needs for the nodes themselves.
at::Tensor chain(const at::Tensor& leaf, int nodes) {
  at::Tensor value = leaf;
  for (int i = 0; i < nodes; ++i) value = i % 2 == 0 ? value.tanh() : value.neg();
  return value;
}

TEST(AutogradGraphTest, ReachesEveryNodeOnce) {
  const at::Tensor a = torch::ones({2}).requires_grad_();
  const at::Tensor b = torch::ones({2}).requires_grad_();
  const at::Tensor unused = torch::ones({2}).requires_grad_();
  at::Tensor value = a;
  for (int i = 0; i < 100; ++i) value = value + value;  // 2^100 ways through the graph
  const at::Tensor other = b * 2;
  const std::vector<at::Tensor> roots = {value, other, a, torch::ones({2}), at::Tensor()};
  AutogradGraph graph;
  graph.collect(roots);
  EXPECT_EQ(graph.size(), 100U + 1U + 2U);
  const auto has = [&graph](const at::Tensor& leaf) {
    return graph.contains(torch::autograd::impl::grad_accumulator(leaf).get());
  };
  EXPECT_TRUE(has(a));
  EXPECT_TRUE(has(b));
  EXPECT_FALSE(has(unused));
  EXPECT_TRUE(graph.contains(value.grad_fn().get()));

  graph.collect({&roots[1], 1});  // forgets what was collected before
  EXPECT_EQ(graph.size(), 2U);
  EXPECT_FALSE(has(a));
  EXPECT_TRUE(has(b));
}

TEST(AutogradGraphTest, MayBeOfAnyDepth) {
  const at::Tensor leaf = torch::ones({1}).requires_grad_();
  const at::Tensor output = chain(leaf, 200'000);
  AutogradGraph graph;
  graph.collect({&output, 1});
  EXPECT_EQ(graph.size(), 200'001U);
}

// Case 62. Both are timed in turn, so that a busy host slows both; and one undisturbed round of five is enough.
TEST(AutogradGraphTest, AWalkTakesATinyPartOfTheBackward) {
  constexpr int kNodes = 1000;
  constexpr int kPairs = 31;
  const at::Tensor leaf = torch::ones({8}).requires_grad_();
  AutogradGraph graph;
  double min = 1;
  for (int round = 0; round < 5 && min > 0.02; ++round) {
    std::vector<double> walks;
    std::vector<double> backwards;
    for (int pair = 0; pair < kPairs; ++pair) {
      const at::Tensor output = chain(leaf, kNodes).sum();
      walks.push_back(seconds_of([&] { graph.collect({&output, 1}); }));
      backwards.push_back(seconds_of([&] { output.backward(); }));
    }
    EXPECT_EQ(graph.size(), kNodes + 2U);  // the sum, and the accumulator of the leaf
    min = std::min(min, median(walks) / median(backwards));
  }
  RecordProperty("walk_over_backward", std::to_string(min));
  EXPECT_LE(min, 0.02);
}

}  // namespace autograd_graph_test
}  // namespace lockstep::parallel
