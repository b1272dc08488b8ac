// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/trace.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <torch/types.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <thread>

namespace lockstep::engine {
namespace trace_test {

TEST(TraceTest, IsTheChromeTraceFormat) {
  const std::string first = trace_events({{"step 1", 0, 10.5, 12}, {"aten::\"odd\"\\\n", 2, 11, 11.25}}, 0);
  const std::string third = trace_events({}, 2);
  const auto trace = nlohmann::json::parse(trace_file({first, "", third}));
  std::vector<nlohmann::json> spans;
  std::set<int> lanes;
  for (const auto& event : trace.at("traceEvents")) {
    lanes.insert(event.at("pid").get<int>());
    if (event.at("ph") == "X") spans.push_back(event);
    if (event.at("ph") == "M" && event.at("name") == "process_name" && event.at("pid") == 2) {
      EXPECT_EQ(event.at("args").at("name"), "rank 2");
    }
  }
  EXPECT_EQ(lanes, (std::set<int>{0, 2}));
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].at("name"), "step 1");
  EXPECT_EQ(spans[0].at("ts"), 10.5);
  EXPECT_EQ(spans[0].at("dur"), 1.5);
  EXPECT_EQ(spans[1].at("name"), "aten::\"odd\"\\\n");
  EXPECT_EQ(spans[1].at("tid"), 2);
  EXPECT_TRUE(nlohmann::json::parse(trace_file({})).at("traceEvents").empty());
}

std::size_t count(const std::vector<Span>& spans, const std::string& name) {
  return static_cast<std::size_t>(
      std::count_if(spans.begin(), spans.end(), [&name](const Span& span) { return span.name == name; }));
}

TEST(TraceTest, NotesOperatorsOfEveryThreadAndOfBackward) {
  const at::Tensor weight = torch::ones({3, 3}, torch::requires_grad());
  weight.mm(weight);  // state before
  OperatorTrace trace(1000);
  const double begin = trace_now();
  weight.mm(weight).sum().backward();
  std::thread([] { at::ones({2}).add(1); }).join();
  const double end = trace_now();
  const std::vector<Span> spans = trace.take();
  EXPECT_GE(count(spans, "aten::mm"), 3U);  // one forward, two backward
  EXPECT_EQ(count(spans, "MmBackward0"), 1U);
  EXPECT_GE(count(spans, "aten::add"), 1U);
  std::set<std::int64_t> threads;
  for (const Span& span : spans) {
    threads.insert(span.thread);
    EXPECT_LE(begin, span.begin);
    EXPECT_LE(span.begin, span.end);
    EXPECT_LE(span.end, end);
  }
  EXPECT_GE(threads.size(), 2U);
  EXPECT_FALSE(threads.contains(0));  // that is the steps' own
  EXPECT_EQ(trace.dropped(), 0U);
}

TEST(TraceTest, SelfTimesAreWithoutTheSpansInside) {
  // Thread 1: a holds b twice, the first of which holds c. Thread 2 works at the same time.
  const std::map<std::string, double> times = self_times(
      {{"c", 1, 12, 15}, {"b", 1, 11, 16}, {"b", 1, 16, 18}, {"a", 1, 10, 20}, {"a", 2, 13, 14}, {"a", 1, 30, 31}});
  const std::map<std::string, double> expected = {{"a", (10 - 7) + 1 + 1}, {"b", (5 - 3) + 2}, {"c", 3}};
  EXPECT_EQ(times, expected);
}

TEST(TraceTest, EndsWithItsLifeAndIsAlone) {
  {
    OperatorTrace trace(2);
    EXPECT_THROW(OperatorTrace(2), std::logic_error);
    for (int i = 0; i < 5; ++i) at::ones({2}).neg();
    EXPECT_EQ(trace.take().size(), 2U);
    EXPECT_GE(trace.dropped(), 8U);
  }
  OperatorTrace trace(1000);
  EXPECT_EQ(count(trace.take(), "aten::neg"), 0U);
}

}  // namespace trace_test
}  // namespace lockstep::engine
