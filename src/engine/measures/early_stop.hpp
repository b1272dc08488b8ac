// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/saving/best_values.hpp"

namespace lockstep::engine {

/// When a series of measurements has improved long enough: a pure function of the measurements.
class EarlyStop {
 public:
  struct EarlyStopOptions {
    Better better = Better::lower;
    double min_delta = 0;  ///< >= 0
    std::int64_t patience = 5;
    std::optional<double> threshold = {};
    bool checks_finite = true;
  };
  explicit EarlyStop(const EarlyStopOptions& options) : options_(options) {}

  /// The next measurement.
  void offer(double value, std::int64_t step);
  /// Why it is over, as the end of a sentence about the metric; empty = it is not. After a restore with other options
  /// it is decided by these.
  std::string reason() const;

  std::optional<double> best() const noexcept { return best_; }
  std::int64_t waited() const noexcept { return waited_; }  ///< measurements since the best one

  /// Attributes `waited`, and once something was offered `last`, `best` and `best_step`.
  void capture(checkpoints::Archive& archive, const std::string& group) const;
  void restore(const checkpoints::Archive& archive, const std::string& group);

 private:
  bool is_better(double left, double right) const;
  bool improves(double value) const;

  EarlyStopOptions options_;
  std::optional<double> best_;
  std::optional<double> last_;
  std::int64_t best_step_ = 0;
  std::int64_t waited_ = 0;
};

}  // namespace lockstep::engine
