// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::batch {
class LatePlaces;
class LateValues;
}  // namespace lockstep::batch

namespace lockstep::optim {

class LiveNumbers;

/// The options of gradient clipping.
struct Clip {
  double max_norm = 0;       ///< maximum norm of the gradients; 0 = unlimited
  double norm_type = 2;      ///< p of the norm; infinity = maximum magnitude
  double max_value = 0;      ///< elements are clamped to [-max_value, max_value]; 0 = off
  bool is_by_group = false;  ///< the norm of each parameter group instead of the norm of all gradients

  bool is_on() const { return max_norm > 0 || max_value > 0; }
};

/// The result of update_params.
struct UpdateReport {
  bool updated = false;             ///< false = the micro-batch was only accumulated, or a value was not finite
  std::optional<double> grad_norm;  ///< norm of the gradients before clipping, without the loss scale, if computed
  bool is_finite = true;            ///< false = the norm, or with a scaler a gradient, was not finite; gradients were
                                    ///< dropped, nothing was updated or counted
  std::int64_t evaluations = 1;     ///< evaluations of the loss in the step
  bool is_pending = false;          ///< the rest is not known yet, see OptimWrapper::set_late_reports
};

/// The optimizer of a training step: an OptimWrapper, or all optimizers of an OptimWrapperDict together.
class BaseOptimWrapper {
 public:
  virtual ~BaseOptimWrapper() = default;

  /// Whether the next micro-batch completes a step. Only its backward may synchronize.
  virtual bool completes_step() const noexcept = 0;
  /// The number of micro-batches in the step of the next micro-batch.
  /// @throws std::logic_error  the training is complete
  virtual std::int64_t micro_batches_in_step() const = 0;
  /// Runs the backward pass of `loss * weight` and, if the step is complete, clips the gradients, updates the
  /// parameters and clears the gradients.
  ///
  /// @param loss    [] scalar, mean loss of the micro-batch
  /// @param weight  weight of the micro-batch in the step; default 1 / micro_batches_in_step
  /// @param before_update  called between backward and update of the micro-batch that completes a step; can be empty
  /// Collective when it completes a step.
  virtual UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt,
                                     const std::function<void()>& before_update = {}) = 0;
  /// The step of the next micro-batch only drops its gradients: its loss is a mean over nothing. Every rank calls it,
  /// before update_params of the micro-batch that completes the step.
  virtual void skip_update() noexcept = 0;
  /// Whether a step evaluates the loss several times, see OptimWrapper::update_with_closure.
  virtual bool uses_closure() const noexcept = 0;
  virtual const GradScaler* scaler() const noexcept = 0;  ///< null = losses are not scaled
  /// The parameters of a single optimizer; null = there are several.
  virtual const FlatParameters* own_parameters() const noexcept = 0;
};

/// Performs all updates of parameters by a step: accumulates, clips, updates, and clears the gradients.
///
/// With a scaler it corresponds to an AMP wrapper: losses are multiplied by the loss scale, gradients are divided by it
/// during the update, and steps with gradients that are not finite are skipped. Without a scaler, gradients are checked
/// only if they are clipped by norm, or with skips_nonfinite.
class OptimWrapper : public BaseOptimWrapper {
 public:
  struct WrapperOptions {
    std::int64_t accumulation_steps = 1;  ///< micro-batches per step; >= 1
    Clip clip = {};
    std::optional<GradScalerOptions> scaler = {};
    bool skips_nonfinite = false;  ///< also without a scaler, skip steps with gradients that are not finite
  };
  /// @throws ConfigError  an option is out of range; or clipping, a scaler or skips_nonfinite is used with a closure
  ///                      rule
  OptimWrapper(Optimizer optimizer, FlatParameters& parameters, const WrapperOptions& options);

  /// Sets the position in the training. If the total number of micro-batches is not a multiple of the accumulation
  /// steps, the last step is smaller. Logs a warning if `done` is inside a step, because its first gradients are lost.
  /// @param done   number of micro-batches before the next one
  /// @param total  number of micro-batches of the training; 0 = unknown
  void begin_at(std::int64_t done, std::int64_t total);

  bool completes_step() const noexcept override;
  std::int64_t micro_batches_in_step() const override;
  std::int64_t micro_batches_done() const noexcept { return done_; }
  std::int64_t accumulation_steps() const noexcept { return options_.accumulation_steps; }

  UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt,
                             const std::function<void()>& before_update = {}) override;

  void skip_update() noexcept override { skips_update_ = true; }

  /// Whether update_params on a GPU returns before the GPU has found out whether the update took place. Its report then
  /// has is_pending, and take_report gives it later. The GPU itself skips an update with gradients that are not finite.
  /// What depends on the result of the update before waits for it: the loss scale, and with skips_nonfinite the count
  /// of updates. Default: false. A change discards pending reports.
  void set_late_reports(bool are_late) noexcept;
  /// Waits for the results of all updates with a pending report. The counts and the loss scale are then those after
  /// the last of them.
  void settle();
  /// The report of the earliest update whose report is pending. The host waits for this update, not for later ones.
  /// @throws std::logic_error  there is none
  UpdateReport take_report();
  /// Discards pending reports: the state of an earlier step was restored.
  void drop_reports() noexcept;

  // The parts of update_params, recorded by mpi::StepGraph: no work is done.

  /// The backward pass of a micro-batch.
  /// @param weight  as in update_params, of the micro-batch at hand
  void record_backward(const Tensor& loss, std::function<double()> weight, LiveNumbers& live);
  /// The update, called after the backward pass of the micro-batch that completes a step. The step is counted.
  /// @throws std::runtime_error  the step cannot be recorded
  void record_update(LiveNumbers& live);
  /// Counts the recorded step, before LiveNumbers::refresh and its next launch.
  void count_recorded_update();
  /// Reverts record_update, wherever it failed, or count_recorded_update: the work was not launched.
  void uncount_recorded_update();
  /// The report of the launch of a recorded micro-batch. Where it completes its step, the host waits for it, or the
  /// report is pending as in update_params.
  UpdateReport read_recorded_update();

  /// If true, call update_with_closure instead of update_params.
  bool uses_closure() const noexcept override { return optimizer_.rule().uses_closure(); }
  /// Performs one step of a closure rule.
  /// @param closure  runs forward and update_params for the micro-batches of the step (update_params then only
  ///                 accumulates) and returns their mean loss; see Optimizer::step_with_closure
  /// Collective.
  UpdateReport update_with_closure(const std::function<double()>& closure);

  /// Discards the accumulated micro-batches, after an error.
  void reset() noexcept {
    done_ = step_begin_;
    is_in_closure_ = false;
    skips_update_ = false;
  }

  /// The values of one option for every group, in order: "base_lr" (which schedules multiply) or an option by name.
  /// "momentum" is beta1 for rules with betas, and 0 for rules with neither.
  std::vector<double> values(std::string_view option) const;

  Optimizer& optimizer() noexcept { return optimizer_; }
  const Optimizer& optimizer() const noexcept { return optimizer_; }
  FlatParameters& parameters() noexcept { return *parameters_; }
  GradScaler* scaler() noexcept { return scaler_ ? &*scaler_ : nullptr; }  ///< null = losses are not scaled
  const GradScaler* scaler() const noexcept override { return scaler_ ? &*scaler_ : nullptr; }
  const FlatParameters* own_parameters() const noexcept override { return parameters_; }

 private:
  friend class OptimWrapperDict;

  void finish_without_step();
  UpdateReport clip_and_step(double scale);
  Tensor queue_step_tensors(double scale, LiveNumbers* live);
  UpdateReport report_of(const Tensor& facts);
  UpdateReport outcome_of(const Tensor& facts) const;

  /// An update with a result that is on its way from the GPU.
  struct LateUpdate {
    std::shared_ptr<batch::LateValues> facts;
    std::vector<std::vector<char>> counted = {};  // Optimizer::counted
    std::optional<UpdateReport> report = {};      // left by settle
  };
  void settle(LateUpdate& update);

  Optimizer optimizer_;
  FlatParameters* parameters_;
  WrapperOptions options_;
  std::optional<GradScaler> scaler_;
  std::int64_t done_ = 0;        // micro_batches
  std::int64_t step_begin_ = 0;  // `done_` when the step at hand began
  std::int64_t total_ = 0;       // micro-batches of the whole training; 0 = unknown
  bool is_in_closure_ = false;
  bool skips_update_ = false;
  bool are_late_ = false;                                // whether updates on a GPU are reported later
  std::deque<LateUpdate> late_updates_;                  // the oldest first
  std::shared_ptr<batch::LatePlaces> late_places_;       // null = none was needed
  std::shared_ptr<Tensor> recorded_facts_;               // results of the latest launch of a recorded step
  std::vector<std::vector<std::int64_t>> steps_before_;  // counts before the recorded step at hand
};

/// Several optimizers of one training, by name, for example of a generator and a discriminator. Each performs its own
/// steps; this class contains the common operations, in alphabetical order of names.
///
/// As a BaseOptimWrapper, it updates all parameters by one loss: one backward pass, then the update of each optimizer,
/// which clips its own gradients. The loss is multiplied by the smallest of the loss scales. An optimizer with
/// gradients that are not finite skips its update; then every loss scale is reduced.
class OptimWrapperDict : public BaseOptimWrapper {
 public:
  /// @throws ConfigError  the name exists
  OptimWrapper& add(const std::string& name, OptimWrapper wrapper);

  std::size_t size() const noexcept { return wrappers_.size(); }
  bool contains(const std::string& name) const { return wrappers_.contains(name); }
  /// @throws ConfigError  the name is unknown; the message lists the known names
  OptimWrapper& at(const std::string& name);
  const OptimWrapper& at(const std::string& name) const;
  auto begin() noexcept { return wrappers_.begin(); }
  auto end() noexcept { return wrappers_.end(); }
  auto begin() const noexcept { return wrappers_.begin(); }
  auto end() const noexcept { return wrappers_.end(); }

  /// Calls OptimWrapper::begin_at of each. All of them process the same micro-batches.
  void begin_at(std::int64_t done, std::int64_t total);
  // All together.
  bool completes_step() const noexcept override { return wrappers_.begin()->second.completes_step(); }
  std::int64_t micro_batches_in_step() const override { return wrappers_.begin()->second.micro_batches_in_step(); }
  UpdateReport update_params(const Tensor& loss, std::optional<double> weight = std::nullopt,
                             const std::function<void()>& before_update = {}) override;
  void skip_update() noexcept override;
  bool uses_closure() const noexcept override { return false; }
  const GradScaler* scaler() const noexcept override;  ///< the one with the smallest scale
  const FlatParameters* own_parameters() const noexcept override { return nullptr; }

  /// Clears the gradients of all parameters (they become undefined).
  void drop_gradients();
  /// Calls OptimWrapper::reset of each.
  void reset() noexcept;
  /// The OptimWrapper::values of each, as "<name>.<option>".
  std::map<std::string, std::vector<double>> values(std::string_view option) const;

 private:
  std::map<std::string, OptimWrapper> wrappers_;
};

}  // namespace lockstep::optim
