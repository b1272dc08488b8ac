// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/loss_counts.hpp"

#include <lockstep/core/error.hpp>

#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "core/text/text.hpp"
#include "models/losses/loss_counts.hpp"

namespace lockstep::engine {

namespace {

/// A count as two whole numbers, of 2^-20 and of 2^-62. Their sums are exact, so that they do not depend on the order
/// of batches and ranks, also where class weights make counts of fractions.
constexpr double kCoarse = 0x1p-20;
constexpr double kFine = 0x1p-62;

std::pair<double, double> whole_numbers_of(double count) {
  const double coarse = std::round(count / kCoarse);
  return {coarse, std::round((count - coarse * kCoarse) / kFine)};
}

}  // namespace

LossCounts::LossCounts(const models::Model& model, const batch::Batch& first, const mpi::Communicator& world) {
  world.all_or_throw([&] {
    for (const auto& [name, count] : models::counts_of(model, first)) names_.push_back(name);
  });
  const std::vector<std::string> all = world.all_gather(joined(names_));
  world.all_or_throw([&] {
    if (all[static_cast<std::size_t>(world.rank())] == all.front()) return;
    throw ConfigError("the model counts items of the losses '" + joined(names_) + "', but on rank 0 of '" +
                      all.front() + "'");
  });
  if (!names_.empty() || !models::counts_by_task(model)) return;
  names_.push_back("loss");
  is_of_task_ = true;
}

/// The counts in the order of the names. Of default losses, the number of targets that do not count follows.
std::vector<double> LossCounts::counts_of(const models::Model& model, const batch::Batch& batch) const {
  if (is_of_task_) {
    const models::TargetCount targets = models::count_targets(model, batch);
    return {targets.counted, targets.all - targets.counted};
  }
  std::vector<double> counts;
  std::vector<std::string> names;
  for (const auto& [name, count] : models::counts_of(model, batch)) {
    if (!(count >= 0) || std::isinf(count)) {
      throw ConfigError("the model counts " + number_text(count) + " items of the loss '" + name + "'");
    }
    names.push_back(name);
    counts.push_back(count);
  }
  if (names == names_) return counts;
  throw ConfigError("the model counts items of the losses '" + joined(names) + "', but in the first batch of '" +
                    joined(names_) + "'");
}

/// @param counts  of a micro_batch
/// @param totals  the same of the step
models::LossWeights LossCounts::weights_of(const std::vector<double>& counts, double usual, double parts,
                                           const std::vector<double>& totals) const {
  models::LossWeights weights(usual);
  if (is_of_task_ && totals.back() == 0) return weights;
  weights.are_of_task = is_of_task_;
  weights.count_nothing = true;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    weights.by_name.emplace_back(names_[i], totals[i] == 0 ? 0 : parts * counts[i] / totals[i]);
    weights.count_nothing = weights.count_nothing && totals[i] == 0;
  }
  return weights;
}

std::vector<models::LossWeights> LossCounts::weigh(const models::Model& model, std::span<const batch::Batch> batches,
                                                   std::span<const double> usual, double parts,
                                                   const mpi::Communicator& world,
                                                   mpi::Collectives& collectives) const {
  std::vector<std::vector<double>> counts;
  const std::size_t numbers = names_.size() + (is_of_task_ ? 1 : 0);
  std::vector<double> sums(2 * numbers, 0.0);
  std::exception_ptr failure;
  try {
    for (const batch::Batch& batch : batches) {
      counts.push_back(counts_of(model, batch));
      for (std::size_t i = 0; i < numbers; ++i) {
        const auto [coarse, fine] = whole_numbers_of(counts.back()[i]);
        sums[2 * i] += coarse;
        sums[2 * i + 1] += fine;
      }
    }
  } catch (...) {
    failure = std::current_exception();
    sums.assign(sums.size(), std::numeric_limits<double>::quiet_NaN());  // NaN tells all ranks of the failure
  }
  collectives.all_reduce(sums.data(), sums.size(), DType::float64, mpi::ReduceOp::sum);
  if (std::isnan(sums.front())) {
    world.all_or_throw([&] {
      if (failure) std::rethrow_exception(failure);
    });
  }
  std::vector<double> totals;
  for (std::size_t i = 0; i < numbers; ++i) totals.push_back(sums[2 * i] * kCoarse + sums[2 * i + 1] * kFine);
  std::vector<models::LossWeights> weights;
  for (std::size_t b = 0; b < batches.size(); ++b) weights.push_back(weights_of(counts[b], usual[b], parts, totals));
  return weights;
}

}  // namespace lockstep::engine
