// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>
#include <torch/types.h>

#include <vector>

#include "parallel/reducers/autograd_graph.hpp"
#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {
namespace unused_parameters_test {

/// Three parameters of one element each.
class UnusedParametersTest : public ::testing::Test {
 protected:
  static std::vector<NamedParameter> make_parameters() {
    std::vector<NamedParameter> parameters;
    for (const char* name : {"a", "b", "c"}) {
      parameters.push_back({.name = name, .tensor = torch::ones({1}).requires_grad_(true)});
    }
    return parameters;
  }
  const at::Tensor& parameter(std::size_t i) const { return parameters_[i].tensor; }
  void find(const std::vector<at::Tensor>& outputs) { unused_.find(outputs, hooks_.nodes()); }
  std::vector<bool> found() const { return {unused_.contains(0), unused_.contains(1), unused_.contains(2)}; }

  std::vector<NamedParameter> parameters_ = make_parameters();
  AccumulatorHooks hooks_{parameters_, [](std::size_t, bool) {}};
  UnusedParameters unused_{3};
};

TEST_F(UnusedParametersTest, FindsWhatNoOutputDependsOn) {
  find({parameter(0) * 2, parameter(2).exp()});
  EXPECT_EQ(found(), (std::vector<bool>{false, true, false}));
}

TEST_F(UnusedParametersTest, OutputsWithoutAGraphUseNothing) {
  find({parameter(0).detach() * parameter(1).detach()});
  EXPECT_EQ(found(), (std::vector<bool>{true, true, true}));
}

TEST_F(UnusedParametersTest, AStepBeginsWithoutKnowledge) {
  find({parameter(0) * 2});
  unused_.clear();
  EXPECT_EQ(found(), (std::vector<bool>{false, false, false}));
}

TEST_F(UnusedParametersTest, NoticesThatTheUnusedParametersChange) {
  EXPECT_TRUE(unused_.are_constant());
  find({parameter(0) + parameter(1)});
  find({parameter(1) * parameter(0)});
  EXPECT_TRUE(unused_.are_constant());
  find({parameter(0) + parameter(2)});
  EXPECT_FALSE(unused_.are_constant());
  find({parameter(0) + parameter(1)});
  EXPECT_FALSE(unused_.are_constant());
}

}  // namespace unused_parameters_test
}  // namespace lockstep::parallel
