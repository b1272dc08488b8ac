// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <memory>

namespace lockstep::data {

/// How predictions become inputs.
struct RolloutRule {
  std::int64_t passes = 1;   ///< forward passes, each of which begins where the one before has ended
  bool first_only = false;   ///< the only window of a trajectory is the first one
  bool last_target = false;  ///< the targets are those of the last pass alone; the model computes no gradients before
  /// The task names the targets of all passes, t2m@1, t2m@2, ..., and samples have what persistence predicts, as the
  /// value "persistence". Otherwise the task is that of one pass.
  bool is_measured = false;
  /// The samples have no targets. If the files have nothing to read but the first input, the windows are as long as
  /// that one, so that rollouts continue behind the end of the files.
  bool is_forecast = false;
  std::int64_t pass_steps = 0;  ///< steps of time that a pass predicts; 0 = those of the targets
};

/// A data set whose samples can go on in time.
class RolloutDataset {
 public:
  virtual ~RolloutDataset() = default;
  /// The same windows, but longer: the targets are those of all passes, and the value "later_inputs" has the inputs of
  /// all passes but the first.
  /// @throws ConfigError  targets are no inputs, or no window is long enough
  virtual std::shared_ptr<const Dataset> rolled_out(const RolloutRule& rule) const = 0;
};

}  // namespace lockstep::data
