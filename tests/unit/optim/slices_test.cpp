// SPDX-License-Identifier: BSD-3-Clause
// A parameter has the same bits whoever updates which part of it, under every rule: also those that need sums over it.
#include <gtest/gtest.h>

#include <barrier>
#include <cmath>
#include <mutex>
#include <set>
#include <thread>

#include "every_loop.hpp"
#include "support/flat_parameters_double.hpp"

namespace lockstep::optim {
namespace slices_test {

using testing::FlatParametersDouble;

const std::vector<FlatParametersDouble::Parameter> kParameters = {{"several", {5, 2000}},
                                                                  {"one", {kPieceElements}},
                                                                  {"small", {7}},
                                                                  {"scalar", {}},
                                                                  {"many", {3 * kPieceElements + 1}}};
constexpr int kSteps = 4;

/// The barriers that threads that share parameters meet in, one for each part.
struct NodeRanks {
  explicit NodeRanks(int count) : meeting(count) {}

  std::barrier<> meeting;
  std::mutex mutex;
  std::vector<double> total;
};

class SharedDouble : public FlatParametersDouble {
 public:
  SharedDouble(DType dtype, NodeRanks& node_ranks)
      : FlatParametersDouble(dtype, kParameters), node_ranks_(&node_ranks) {}

  void sum_over_owners(std::span<double> values) const override {
    {
      const std::lock_guard lock(node_ranks_->mutex);
      node_ranks_->total.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) node_ranks_->total[i] += values[i];
    }
    node_ranks_->meeting.arrive_and_wait();
    std::copy(node_ranks_->total.begin(), node_ranks_->total.end(), values.begin());
    node_ranks_->meeting.arrive_and_wait();  // all have copied
    {
      const std::lock_guard lock(node_ranks_->mutex);
      node_ranks_->total.clear();
    }
    node_ranks_->meeting.arrive_and_wait();  // all have cleared
  }

 private:
  NodeRanks* node_ranks_;
};

template <class T>
std::vector<T> wave(std::int64_t count, double start) {
  std::vector<T> numbers;
  for (std::int64_t i = 0; i < count; ++i)
    numbers.push_back(static_cast<T>(std::sin(start + 0.37 * static_cast<double>(i))));
  return numbers;
}

template <class T>
void train(SharedDouble& parameters, const OptionValues& settings) {
  const auto& segments = parameters.blocks()[0].segments;
  for (const Segment& segment : segments) parameters.set_values(segment.name, wave<T>(segment.count, 1));
  Optimizer optimizer = make_optimizer(settings, parameters);
  for (int k = 0; k < kSteps; ++k) {
    parameters.drop_gradients();
    for (const Segment& segment : segments) {
      const bool has_gradient = segment.name != "one" || k % 2 == 0;
      if (has_gradient) parameters.set_gradient(segment.name, wave<T>(segment.count, 10 * k + 2));
    }
    optimizer.step(k < kSteps / 2 ? GradientChange{.factor = 0.5, .limit = 0.45} : GradientChange{});
  }
}

template <class T>
std::map<std::string, std::vector<T>> values_after(const OptionValues& settings, int slices) {
  const DType dtype = sizeof(T) == 4 ? DType::float32 : DType::float64;
  NodeRanks node_ranks(slices);
  std::vector<std::unique_ptr<SharedDouble>> parts;
  for (int slice = 0; slice < slices; ++slice) {
    auto& part = parts.emplace_back(std::make_unique<SharedDouble>(dtype, node_ranks));
    part->longest_visit = slices == 1 ? std::numeric_limits<std::int64_t>::max() : kPieceElements;
    for (const Segment& segment : part->blocks()[0].segments) {
      const auto border = [&](int position) {
        const std::int64_t pieces = (segment.count + kPieceElements - 1) / kPieceElements;
        return std::min(segment.count, pieces * position / slices * kPieceElements);
      };
      part->own(segment.name, border(slice), border(slice + 1));
    }
  }
  {
    std::vector<std::jthread> threads;
    for (auto& part : parts) threads.emplace_back([&part, &settings] { train<T>(*part, settings); });
  }
  std::map<std::string, std::vector<T>> values;
  for (auto& part : parts) {
    for (const Segment& segment : part->blocks()[0].segments) {
      const auto own = part->values<T>(segment.name)
                           .subspan(static_cast<std::size_t>(segment.own_begin),
                                    static_cast<std::size_t>(segment.own_end - segment.own_begin));
      values[segment.name].insert(values[segment.name].end(), own.begin(), own.end());
    }
  }
  return values;
}

template <class T>
void expect_same_bits() {
  std::set<std::string> seen;
  for (const OptionValues& settings : every_loop()) {
    SCOPED_TRACE(settings.front().second);
    seen.insert(settings.front().second);
    const auto whole = values_after<T>(settings, 1);
    EXPECT_NE(whole.at("many"), wave<T>(3 * kPieceElements + 1, 1));
    for (const int slices : {2, 3}) EXPECT_EQ(values_after<T>(settings, slices), whole) << slices;
  }
  for (const Rule& rule : builtin_rules()) EXPECT_EQ(seen.contains(rule.name), !rule.uses_closure()) << rule.name;
}

TEST(OptimSlicesTest, GiveTheBitsOfTheWholeInSingle) { expect_same_bits<float>(); }
TEST(OptimSlicesTest, GiveTheBitsOfTheWholeInDouble) { expect_same_bits<double>(); }

}  // namespace slices_test
}  // namespace lockstep::optim
