// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/hook.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "core/text/better.hpp"
#include "engine/settings/saving_settings.hpp"

namespace lockstep::engine {

/// Whether an evaluation's number "val/loss" is meant by "val/loss" or just "loss".
bool is_metric(const std::string& full, const std::string& wanted);

/// The best values of a metric that a run has seen, and at which steps.
class BestValues {
 public:
  struct BestValue {
    double value = 0;
    std::int64_t step = 0;
    bool operator==(const BestValue&) const = default;
  };

  /// @throws ConfigError  the name of the metric does not determine the direction, and ckpt.better is not set
  explicit BestValues(const BestSettings& settings);

  bool is_off() const noexcept { return keep_ == 0; }
  const std::string& metric() const noexcept { return metric_; }
  /// The best one first; at most keep_best.
  const std::vector<BestValue>& entries() const noexcept { return entries_; }
  std::vector<std::int64_t> steps() const;

  /// Takes note of an evaluation.
  /// @return  whether its value is one of the best now. A NaN never is; of equal values the first one stays
  /// @throws ConfigError  it lacks the metric, and what it has; the same on every rank
  bool offer(const Measured& measured);

  /// Attributes `metric` and `rule`; for each of the best a group 0, 1, ... with attributes `value` and `step`.
  void capture(checkpoints::Archive& archive, const std::string& group) const;
  /// Values of another metric or direction are discarded.
  /// @return  whether it was taken over
  bool restore(const checkpoints::Archive& archive, const std::string& group);

 private:
  bool is_better(double left, double right) const;
  bool insert(BestValue entry);

  std::int64_t keep_;  // maximum number of entries
  std::string metric_;
  Better better_ = Better::lower;
  std::vector<BestValue> entries_;
};

}  // namespace lockstep::engine
