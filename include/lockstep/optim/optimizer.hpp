// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/optim/flat_parameters.hpp>
#include <lockstep/optim/rule.hpp>

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::kernels {
struct RoundingKey;
}

namespace lockstep::optim {

struct ParamGroup {
  std::string name;                     ///< "decay", "no_decay", "lr*0.1", ..., or "all"
  Options options;                      ///< current values; a schedule changes "lr" here
  double base_lr = 0;                   ///< value that schedules multiply
  std::vector<std::string> parameters;  ///< names, in the order of the model
  bool is_scheduled = false;            ///< whether a schedule sets the options
};

/// The groups of a ParamGroupBuilder, without its messages.
std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule, std::span<const ParameterInfo> parameters);

/// The transformation of a gradient before an update.
struct GradientChange {
  double factor = 1;  ///< multiplies every element,
  /// Then each element is clamped to [-limit, limit]; NaN is kept.
  double limit = std::numeric_limits<double>::infinity();

  bool is_none() const { return factor == 1 && limit == std::numeric_limits<double>::infinity(); }
};

/// One state array of one parameter.
struct StateArray {
  std::byte* values;
  DType dtype;
  Shape shape;
  Shape strides;  ///< same meaning as Segment::strides
};

/// The result of a step of a closure rule, equal on every rank.
struct ClosureResult {
  std::int64_t evaluations = 0;
  double grad_norm = 0;  ///< norm at the start of the step; if not finite, no parameter was changed
};

/// How 16-bit parameters are updated.
struct HalfOptions {
  /// Keep the float32 value of each parameter in a state array "master". The parameter is this value, rounded to
  /// nearest even. If false, the float32 value exists only during an update.
  bool has_masters = true;
  /// If there are no masters, for bfloat16: round each value up or down at random, so that small updates have an effect
  /// on average. If false, round to nearest even.
  bool rounds_stochastically = false;
  std::uint64_t seed = 0;  ///< seed of stochastic rounding
};

struct GradScalerOptions {
  double init_scale = 65536;    ///< > 0
  double growth_factor = 2;     ///< > 1: factor on the scale after growth_interval finite steps
  double backoff_factor = 0.5;  ///< > 0 and < 1: factor on the scale after a step that is not finite
  std::int64_t growth_interval = 2000;
  bool is_dynamic = true;  ///< false = constant scale; steps that are not finite are still skipped

  /// Reads "dynamic", or a number, which is the constant scale.
  /// @throws ConfigError  the text is invalid; the message states `origin`
  static GradScalerOptions parse(const std::string& loss_scale, const std::string& origin);
};

/// The loss scale: a factor on the loss before backward, so that gradients in float16 do not underflow. The update
/// divides the gradients by it. A step with gradients that are not finite is skipped, and a dynamic scale is reduced.
/// The scale is equal on every rank and has the range and precision of float32.
///
/// Source: torch.amp.GradScaler. As there, the scale does not grow beyond float32.
class GradScaler {
 public:
  /// The state for checkpoints.
  struct State {
    double scale = 0;
    std::int64_t growth_tracker = 0;    ///< consecutive finite steps since the last change of the scale
    std::int64_t skipped_steps = 0;     ///< skipped steps since the start of the run
    std::int64_t skipped_in_a_row = 0;  ///< consecutive skipped steps
  };

  /// @throws ConfigError  an option out of range
  explicit GradScaler(const GradScalerOptions& options);

  double scale() const noexcept { return state_.scale; }
  /// Updates the scale after a step.
  void update(bool are_finite) noexcept;

  const GradScalerOptions& options() const noexcept { return options_; }
  const State& state() const noexcept { return state_; }
  /// A constant scale keeps its configured value.
  /// @throws std::invalid_argument  the scale is not positive and finite, or a count is negative
  void load_state(const State& state);

 private:
  GradScalerOptions options_;
  State state_;
};

struct TensorChange;
class LiveNumbers;
class TensorStack;

/// Updates flat blocks with a rule; each rank updates the parts that it owns. 16-bit parameters are updated in float32.
class Optimizer {
 public:
  /// @param rule        outlives the optimizer
  /// @param parameters  outlives the optimizer; every segment belongs to exactly one group
  /// Collective over the ranks that share the parameters: allocates the state.
  /// @throws ConfigError  the rule cannot update such parameters
  Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters, HalfOptions half = {});

  /// Updates every parameter with a gradient, through FlatParameters::write. Gradients that are not averaged yet are
  /// averaged in the same pass. Collective like FlatParameters::finish_gradients and write.
  void step(const GradientChange& change = {});
  /// The same with one GradientChange per group, in order.
  void step_by_group(std::span<const GradientChange> changes);
  /// The same for FlatParameters::as_tensors (GPUs). The host does not wait for the GPU.
  /// @param live  not null: the step is recorded, to be launched again with other numbers
  /// @throws std::runtime_error  it cannot be recorded
  void step_tensors(const TensorChange& change, LiveNumbers* live = nullptr);
  /// Counts the step that was recorded last, before it is launched again.
  void count_recorded_step();
  /// Reverts the count of the last step_tensors, which was void.
  void uncount_step() { uncount_step(was_counted_); }
  /// The same for an earlier one.
  /// @param counted  the value of counted() after that step
  void uncount_step(const std::vector<std::vector<char>>& counted);
  /// [block][segment]: whether the last step_tensors had a gradient of the parameter.
  const std::vector<std::vector<char>>& counted() const noexcept { return was_counted_; }
  /// Performs one step of a ClosureRule.
  /// @param closure  runs forward and backward of the whole step with the current parameters and returns the mean loss,
  ///                 which is equal on every rank and reproducible
  /// Collective like `closure`, FlatParameters::finish_gradients and write.
  ClosureResult step_with_closure(const std::function<double()>& closure);

  const Rule& rule() const noexcept { return *rule_; }
  std::vector<ParamGroup>& groups() noexcept { return groups_; }
  const std::vector<ParamGroup>& groups() const noexcept { return groups_; }
  /// The group of a segment.
  std::size_t group_of(std::size_t block, std::size_t segment) const { return group_of_.at(block).at(segment); }

  /// The state for checkpoints. `slot` is the number of the state array of the rule. The span has the layout of
  /// `block`, unless the rule has a state_shape. Each rank writes the parts that it owns; with shared parameters, all
  /// ranks see the complete array.
  const std::vector<std::string>& state_names() const noexcept { return state_names_; }
  std::span<std::byte> state(std::size_t block, std::size_t slot);
  /// The part of one segment; nullopt = the rule does not have this state for it.
  std::optional<StateArray> state_of(std::size_t block, std::size_t segment, std::size_t slot) const;
  /// The number of updates of each segment of `block`, equal on every rank.
  std::span<std::int64_t> steps(std::size_t block);
  /// [block][segment], to put them back.
  std::vector<std::vector<std::int64_t>> all_steps() const { return steps_; }
  void set_all_steps(const std::vector<std::vector<std::int64_t>>& steps);
  /// ClosureRule::numbers, the same on every rank.
  std::map<std::string, double>& numbers() noexcept { return numbers_; }
  const std::map<std::string, double>& numbers() const noexcept { return numbers_; }
  /// See ClosureStep::memo.
  std::any& memo() noexcept { return memo_; }

 private:
  using Changes = std::span<const GradientChange>;  // one element per group
  static constexpr std::size_t kMaxStates = 8;

  // optimizer.cpp
  const Options& options_of(std::size_t block, std::size_t segment) const {
    return groups_[group_of_[block][segment]].options;
  }
  void assign_groups();
  void count_step();

  // The state; initialize_state is in tensor_steps.cpp.
  void name_states();
  void allocate_state(std::size_t block);
  void initialize_state();
  std::optional<Shape> shape_of(std::size_t block, std::size_t segment, std::size_t slot) const;

  // A step by the kind of the rule: element_steps.cpp, tensor_steps.cpp, closure_step.cpp
  void step_by(const ElementRule& rule, Changes changes);
  void step_by(const TensorRule& rule, Changes changes);
  void step_by(const WholeRule& rule, Changes changes);
  void step_by(const ClosureRule& rule, Changes changes);

  // element_steps.cpp
  void compute_coefficients(const ElementRule& rule);
  void update_elements(const ElementRule& rule, Changes changes);
  Needs needs() const;
  void adapt_to_norm(const TensorRule& rule, Changes changes);
  void adapt_to_sums(const TensorRule& rule, Changes changes);
  void visit_pieces(Changes changes, const std::function<void(const GradientPiece&)>& visit);
  template <class Visit>
  void visit_ranges(Changes changes, bool is_last, const Visit& visit);
  template <class T, class Visit>
  void visit_range(const GradientPiece& piece, const GradientChange& change, bool is_last, const Visit& visit);
  void widen_parameter(const std::byte* from, float* target, const GradientPiece& piece) const;
  void round_parameter(const float* from, std::byte* target, const GradientPiece& piece) const;

  // tensor_steps.cpp
  struct StateViews;
  void apply(TensorUpdate& update, std::size_t block, LiveNumbers* live) const;
  void add_to(TensorUpdate& update, std::size_t block, std::size_t segment, const Tensor& parameter,
              const Tensor& gradient) const;

  // half_tensors.cpp
  TensorStack widened(std::size_t block, const std::vector<std::size_t>& segments,
                      const std::vector<Tensor>& halves) const;
  std::vector<Tensor> masters_of(std::size_t block, const std::vector<std::size_t>& segments,
                                 const std::vector<Tensor>& halves) const;
  void narrow(std::size_t block, const std::vector<std::size_t>& segments, const TensorStack& wide,
              const std::vector<Tensor>& halves) const;
  kernels::RoundingKey key_of(std::size_t block, std::size_t segment) const;
  void step_halves(std::size_t block, const std::vector<std::size_t>& segments, const TensorUpdate& update,
                   const std::function<void(TensorUpdate&)>& change_and_update);

  const Rule* rule_;
  std::vector<ParamGroup> groups_;
  FlatParameters* parameters_;
  HalfOptions half_;
  std::vector<std::string> state_names_;
  std::size_t rule_states_ = 0;  // number of the rule's states; the master of 16-bit parameters, if any, follows
  std::vector<std::vector<std::size_t>> group_of_;                   // [block][segment]
  std::vector<std::vector<std::int64_t>> steps_;                     // [block][segment]
  std::vector<std::vector<Coefficients>> coefficients_;              // [block][segment], of the step at hand
  std::vector<std::vector<std::shared_ptr<std::byte>>> state_;       // [block][slot]
  std::vector<std::vector<std::vector<std::int64_t>>> state_begin_;  // [block][slot][segment], and where the last ends
  std::shared_ptr<StateViews> state_views_;                          // tensors that are kept from step to step
  std::map<std::string, double> numbers_;
  std::any memo_;
  std::vector<std::vector<char>> was_counted_;  // [block][segment], by the last step_tensors
  std::vector<std::vector<char>> recorded_;     // the same, of the step that was recorded last
};

}  // namespace lockstep::optim
