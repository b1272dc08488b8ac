// SPDX-License-Identifier: BSD-3-Clause
#include "engine/data_moments.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <span>

// F elements of a sample: those of the input, then those of the target.
namespace lockstep::engine {

namespace {

constexpr std::int64_t kParts = 64;  // parts of the data, each read by one rank; sums are in the order of the parts
constexpr std::int64_t kReadAtOnce = 256;  // samples

/// Count, mean and sum of squared differences from the mean. Source: Chan et al., "Updating formulae and a pairwise
/// algorithm for computing sample variances", 1979, equations 2.1.
struct RunningMoments {
  std::int64_t count = 0;
  at::Tensor mean;     // [F] float64
  at::Tensor squares;  // [F] float64

  void add(const RunningMoments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const auto total = static_cast<double>(count + other.count);
    const at::Tensor difference = other.mean - mean;
    const double share = static_cast<double>(other.count) / total;
    mean = mean + difference * share;
    squares = squares + other.squares + difference.square() * (static_cast<double>(count) * share);
    count += other.count;
  }
};

struct SampleRange {
  std::int64_t begin;
  std::int64_t end;
};

SampleRange part_of(std::int64_t size, std::int64_t part) {
  return {.begin = size * part / kParts, .end = size * (part + 1) / kParts};
}

RunningMoments moments_in(const data::Dataset& train, SampleRange range, bool has_target) {
  RunningMoments result;
  for (std::int64_t begin = range.begin; begin < range.end; begin += kReadAtOnce) {
    const std::int64_t count = std::min(kReadAtOnce, range.end - begin);
    const batch::Batch batch = train.get(batch::draws_in_order(begin, count));
    at::Tensor rows = batch.input().to(at::kDouble).reshape({count, -1});
    if (has_target) rows = at::cat({rows, batch.target().to(at::kDouble).reshape({count, -1})}, 1);
    const at::Tensor mean = rows.mean(0);
    result.add({.count = count, .mean = mean, .squares = (rows - mean).square().sum(0)});
  }
  return result;
}

/// All samples, in an order that does not depend on the ranks.
RunningMoments all_moments(const mpi::Communicator& world, const data::Dataset& train, std::int64_t features,
                           bool has_target) {
  // Each row is zero on all ranks but one, so its sum is exact.
  const at::Tensor table = torch::zeros({kParts, 2, features}, at::kDouble);
  world.all_or_throw([&] {
    for (std::int64_t part = world.rank(); part < kParts; part += world.size()) {
      const RunningMoments moments = moments_in(train, part_of(train.size(), part), has_target);
      if (moments.count == 0) continue;
      table[part][0].copy_(moments.mean);
      table[part][1].copy_(moments.squares);
    }
  });
  world.all_reduce(std::span(table.data_ptr<double>(), static_cast<std::size_t>(table.numel())));
  RunningMoments total;
  for (std::int64_t part = 0; part < kParts; ++part) {
    const SampleRange range = part_of(train.size(), part);
    total.add({.count = range.end - range.begin, .mean = table[part][0], .squares = table[part][1]});
  }
  return total;
}

Moments moments_of(const RunningMoments& all, std::int64_t begin, std::int64_t end) {
  const at::Tensor deviation = (all.squares / static_cast<double>(all.count)).sqrt();
  Moments moments;
  for (std::int64_t i = begin; i < end; ++i) {
    moments.mean.push_back(all.mean[i].item<double>());
    const double value = deviation[i].item<double>();
    moments.deviation.push_back(value > 0 ? value : 1);
  }
  return moments;
}

}  // namespace

Task training_task(const mpi::Communicator& world, const Section& model, const data::Dataset& train) {
  Task task;
  std::int64_t inputs = 0;
  std::int64_t targets = 0;
  world.all_or_throw([&] {
    task = train.task();
    const bool is_wanted = model.has("standardize") && model.boolean("standardize") && task.input_moments.mean.empty();
    if (!is_wanted || train.size() == 0) return;
    const batch::Batch first = train.get(batch::draws_in_order(0, 1));
    inputs = first.input().numel();
    if (task.kind == TaskKind::regression) targets = first.target().numel();
  });
  if (inputs == 0) return task;
  const RunningMoments all = all_moments(world, train, inputs + targets, targets > 0);
  task.input_moments = moments_of(all, 0, inputs);
  if (targets > 0) task.target_moments = moments_of(all, inputs, inputs + targets);
  return task;
}

}  // namespace lockstep::engine
