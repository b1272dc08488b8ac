// SPDX-License-Identifier: BSD-3-Clause
#include "engine/data_moments.hpp"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>
#include <system_error>

#include "data/source/measured.hpp"
#include "data/source/roles.hpp"
#include "data/stores/cache_files.hpp"
#include "log/progress.hpp"

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

// ---- Numbers that a data set measures itself.

/// Reads the parts that a file keeps, or throws nothing and returns none.
std::vector<double> kept_numbers(const std::string& path, std::size_t size) {
  std::ifstream file(path, std::ios::binary);
  std::vector<double> numbers(size);
  const auto bytes = static_cast<std::streamsize>(size * sizeof(double));
  const bool is_whole = file.read(reinterpret_cast<char*>(numbers.data()), bytes) && file.peek() == EOF;
  return is_whole ? numbers : std::vector<double>();
}

void keep_numbers(const std::string& path, std::span<const double> numbers) {
  data::write_whole(path, {std::string_view(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes())});
}

/// The numbers of all parts, each measured by one rank. Parts that an interrupted run has kept are not measured again.
std::vector<double> measured_numbers(const mpi::Communicator& world, const data::MeasuredDataset& train,
                                     const std::string& cache) {
  const auto size = static_cast<std::size_t>(train.numbers_per_part());
  const std::int64_t parts = train.parts();
  std::vector<double> all(size * static_cast<std::size_t>(parts), 0);
  const auto part_path = [&](std::int64_t part) { return cache + "." + std::to_string(part); };
  world.all_or_throw([&] {
    log::ProgressLine progress;
    for (std::int64_t part = world.rank(); part < parts; part += world.size()) {
      std::vector<double> numbers = cache.empty() ? std::vector<double>() : kept_numbers(part_path(part), size);
      if (numbers.empty()) {
        numbers = train.measure(part);
        if (!cache.empty()) keep_numbers(part_path(part), numbers);
      }
      std::ranges::copy(numbers, all.begin() + part * static_cast<std::int64_t>(size));
      if (world.is_root()) {
        progress.show("statistics of the training data: " + std::to_string(100 * (part + 1) / parts) + " %");
      }
    }
  });
  world.all_reduce(std::span(all));  // each number is zero on all ranks but one, so that its sum is exact
  if (world.is_root() && !cache.empty()) {
    keep_numbers(cache, all);
    std::error_code is_gone;  // or stays, which does no harm
    for (std::int64_t part = 0; part < parts; ++part) std::filesystem::remove(part_path(part), is_gone);
  }
  return all;
}

std::vector<double> all_kept_numbers(const data::MeasuredDataset& train, const std::string& cache) {
  if (cache.empty()) return {};
  return kept_numbers(cache, static_cast<std::size_t>(train.numbers_per_part() * train.parts()));
}

/// @param all  the numbers of all parts, one after the other
std::vector<std::vector<double>> in_parts(const data::MeasuredDataset& train, const std::vector<double>& all) {
  std::vector<std::vector<double>> of_parts;
  for (std::int64_t part = 0; part < train.parts(); ++part) {
    const auto begin = all.begin() + part * train.numbers_per_part();
    of_parts.emplace_back(begin, begin + train.numbers_per_part());
  }
  return of_parts;
}

Task measured_task(const mpi::Communicator& world, const data::MeasuredDataset& train, std::string* json) {
  const std::string cache = world.broadcast(train.cache_path());
  std::string kept;  // their bytes
  if (world.is_root()) {
    const std::vector<double> numbers = all_kept_numbers(train, cache);
    kept.assign(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  }
  kept = world.broadcast(kept);
  std::vector<double> all(kept.size() / sizeof(double));
  std::memcpy(all.data(), kept.data(), kept.size());
  if (all.empty()) all = measured_numbers(world, train, cache);
  data::MeasuredTask measured;
  world.all_or_throw([&] { measured = train.result(in_parts(train, all)); });
  for (const std::string& note : measured.notes) {
    if (world.is_root()) log::warning(note);
  }
  if (json != nullptr) *json = measured.json;
  return measured.task;
}

}  // namespace

std::string kept_statistics(const data::Dataset& train) {
  const auto* const measured = data::ability_of<data::MeasuredDataset>(train);
  if (measured == nullptr || measured->parts() == 0) return "";
  const std::vector<double> all = all_kept_numbers(*measured, measured->cache_path());
  return all.empty() ? "" : measured->result(in_parts(*measured, all)).json;
}

Task training_task(const mpi::Communicator& world, const Section& model, const data::Dataset& train,
                   std::string* statistics_json) {
  const auto* const measured = data::ability_of<data::MeasuredDataset>(train);
  if (measured != nullptr && measured->parts() > 0) return measured_task(world, *measured, statistics_json);
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
