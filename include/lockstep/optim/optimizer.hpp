// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor_fwd.hpp>
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

namespace lockstep::optim {

struct ParamGroup {
  std::string name;                     ///< "decay", "no_decay", "lr*0.1", ..., or "all"
  Options options;                      ///< current values; a schedule changes "lr" here
  double base_lr = 0;                   ///< what schedules multiply
  std::vector<std::string> parameters;  ///< names, in the model's order
  bool is_scheduled = false;            ///< a schedule has begun to set the options
};

/// What a parameter is, for building groups.
struct ParameterInfo {
  std::string name;
  std::int64_t dims = 0;          ///< dimensions of its shape
  std::int64_t count = 0;         ///< elements
  bool is_norm = false;           ///< of a batch, instance, group or layer norm
  bool is_depthwise = false;      ///< of a two-dimensional convolution with as many groups as input channels
  bool is_offset = false;         ///< of a layer inside a deformable convolution, which tells it where to look
  bool is_frozen = false;         ///< not trained: in no group
  std::string same_as = {};       ///< the name under which the same tensor came before; empty = it did not
  std::int64_t layers_after = 0;  ///< layers of the model between its own and the output
};

/// The groups of a ParamGroupBuilder, without its remarks.
std::vector<ParamGroup> build_groups(const Section& optim, const Rule& rule, std::span<const ParameterInfo> parameters);

/// What happens to a gradient on its way into an update.
struct GradientChange {
  double factor = 1;                                       ///< multiplies every element,
  double limit = std::numeric_limits<double>::infinity();  ///< then each is clamped to [-limit, limit]; a NaN stays

  bool is_none() const { return factor == 1 && limit == std::numeric_limits<double>::infinity(); }
};

/// One state array of one parameter.
struct StateArray {
  std::byte* values;
  DType dtype;
  Shape shape;
  Shape strides;  ///< as Segment::strides
};

/// The result of a step that evaluates the loss several times. The same on every rank.
struct ClosureResult {
  std::int64_t evaluations = 0;
  double grad_norm = 0;  ///< where the step began; not finite: no parameter was changed
};

struct TensorChange;

/// Updates flat blocks by a rule; each rank the parts that it owns. Parameters of 16 bits are updated in float32, in a
/// state array "master", and rounded to even.
class Optimizer {
 public:
  /// @param rule        outlives the optimizer
  /// @param parameters  outlives the optimizer; every segment belongs to exactly one group
  /// Collective over the ranks that share the parameters: allocates the state.
  Optimizer(const Rule& rule, std::vector<ParamGroup> groups, FlatParameters& parameters);

  /// One update of every parameter that has a gradient, through FlatParameters::write. Gradients that are not averaged
  /// yet are averaged on the way, in the same pass. Collective like FlatParameters::finish_gradients and write.
  void step(const GradientChange& change = {});
  /// The same with a change for each group, in their order.
  void step_by_group(std::span<const GradientChange> changes);
  /// The same where FlatParameters::as_tensors. The host does not wait for the GPU.
  void step_tensors(const TensorChange& change);
  /// Takes back that the last step_tensors was counted: it turned out to be void.
  void uncount_step();
  /// The same for a ClosureRule.
  /// @param closure  runs forward and backward of the whole step with the parameters as they are, and returns its mean
  ///                 loss: the same number on every rank, and again for the same parameters
  /// Collective like `closure`, FlatParameters::finish_gradients and write.
  ClosureResult step_with_closure(const std::function<double()>& closure);

  const Rule& rule() const noexcept { return *rule_; }
  std::vector<ParamGroup>& groups() noexcept { return groups_; }
  const std::vector<ParamGroup>& groups() const noexcept { return groups_; }
  /// The group of a segment.
  std::size_t group_of(std::size_t block, std::size_t segment) const { return group_of_.at(block).at(segment); }

  /// State for checkpoints. `slot` numbers the rule's state arrays; the span is laid out like `block`, unless the rule
  /// has a state_shape. Each rank writes what it owns; where parameters are shared, all see the whole.
  const std::vector<std::string>& state_names() const noexcept { return state_names_; }
  std::span<std::byte> state(std::size_t block, std::size_t slot);
  /// The part of one segment; nullopt = the rule keeps no such state of it.
  std::optional<StateArray> state_of(std::size_t block, std::size_t segment, std::size_t slot) const;
  /// Updates that each segment of `block` has had, the same on every rank.
  std::span<std::int64_t> steps(std::size_t block);
  /// ClosureRule::numbers, the same on every rank.
  std::map<std::string, double>& numbers() noexcept { return numbers_; }
  const std::map<std::string, double>& numbers() const noexcept { return numbers_; }
  /// See ClosureStep::memo.
  std::any& memo() noexcept { return memo_; }

 private:
  using Changes = std::span<const GradientChange>;  // by group
  static constexpr std::size_t kMaxStates = 8;

  // optimizer.cpp
  const Options& options_of(std::size_t block, std::size_t segment) const {
    return groups_[group_of_[block][segment]].options;
  }
  void assign_groups();
  void count_step();

  // optimizer_state.cpp, and initialize_state in tensor_steps.cpp
  void name_states();
  void allocate_state(std::size_t block);
  void initialize_state();

  // A step by the kind of the rule: element_steps.cpp, tensor_steps.cpp, closure_step.cpp
  void step_by(const ElementRule& rule, Changes changes);
  void step_by(const TensorRule& rule, Changes changes);
  void step_by(const WholeRule& rule, Changes changes);
  void step_by(const ClosureRule& rule, Changes changes);

  // element_steps.cpp
  void compute_coefficients(const ElementRule& rule);
  void update_elements(const ElementRule& rule, Changes changes);
  Needs needs_of(const TensorRule& rule) const;
  void adapt_to_norm(const TensorRule& rule, Changes changes);
  void adapt_to_sums(const TensorRule& rule, Changes changes);
  void visit_pieces(Changes changes, const std::function<void(const GradientPiece&)>& visit);
  template <class Visit>
  void visit_ranges(Changes changes, bool is_last, const Visit& visit);
  template <class T, class Visit>
  void visit_range(const GradientPiece& piece, const GradientChange& change, bool is_last, const Visit& visit);

  // tensor_steps.cpp
  void add_to(TensorUpdate& update, std::size_t block, std::size_t segment, const Tensor& parameter,
              const Tensor& gradient) const;

  const Rule* rule_;
  std::vector<ParamGroup> groups_;
  FlatParameters* parameters_;
  std::vector<std::string> state_names_;
  std::size_t rule_states_ = 0;  // of state_names_; then comes that of 16-bit parameters, if there are any
  std::vector<std::vector<std::size_t>> group_of_;                   // [block][segment]
  std::vector<std::vector<std::int64_t>> steps_;                     // [block][segment]
  std::vector<std::vector<Coefficients>> coefficients_;              // [block][segment], of the step at hand
  std::vector<std::vector<std::shared_ptr<std::byte>>> state_;       // [block][slot]
  std::vector<std::vector<std::vector<std::int64_t>>> state_begin_;  // [block][slot][segment], and where the last ends
  std::map<std::string, double> numbers_;
  std::any memo_;
  std::vector<std::vector<char>> was_counted_;  // [block][segment], by the last step_tensors
};

}  // namespace lockstep::optim
