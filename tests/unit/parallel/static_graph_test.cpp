// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <vector>

#include "parallel/reducers/autograd_graph.hpp"

namespace lockstep::parallel {
namespace static_graph_test {

using Use = StaticGraph::Use;

/// Parameter 2 is used first and last, parameter 0 once in between, and parameter 1 never.
StaticGraph learned() {
  StaticGraph graph(3);
  graph.learn_use(2);
  graph.learn_use(0);
  graph.learn_use(2);
  graph.begin_step();
  return graph;
}

TEST(StaticGraphTest, OrdersParametersByTheirLastUse) {
  EXPECT_EQ(learned().order_of_last_use(), (std::vector<std::size_t>{0, 2, 1}));
}

TEST(StaticGraphTest, KnowsWhatIsNeverUsed) {
  const StaticGraph graph = learned();
  EXPECT_FALSE(graph.is_unused(0));
  EXPECT_TRUE(graph.is_unused(1));
  EXPECT_FALSE(graph.is_unused(2));
}

TEST(StaticGraphTest, FindsTheLastUseOfEveryStep) {
  StaticGraph graph = learned();
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(graph.count_use(2), Use::earlier);
    EXPECT_EQ(graph.count_use(0), Use::last);
    EXPECT_EQ(graph.count_use(2), Use::last);
    graph.begin_step();
  }
}

TEST(StaticGraphTest, FindsAUseThatWasNotLearned) {
  StaticGraph graph = learned();
  EXPECT_EQ(graph.count_use(0), Use::last);
  EXPECT_EQ(graph.count_use(0), Use::beyond);
  EXPECT_EQ(graph.count_use(1), Use::beyond);
}

TEST(StaticGraphTest, ForgetsWhatItLearned) {
  StaticGraph graph = learned();
  graph.forget();
  for (const std::size_t parameter : {0, 1, 2}) EXPECT_TRUE(graph.is_unused(parameter));
  graph.learn_use(1);
  EXPECT_EQ(graph.order_of_last_use(), (std::vector<std::size_t>{1, 0, 2}));
}

}  // namespace static_graph_test
}  // namespace lockstep::parallel
