// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/core/tensor_fwd.hpp>
#include <lockstep/optim/flat_parameters.hpp>

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::optim {

/// Options of one parameter group: "lr", "momentum", "weight_decay", "beta1", ... by name, as numbers (flags: 0 or 1).
using Options = std::map<std::string, double>;

struct ParamGroup {
  std::string name;                     ///< "decay", "no_decay", "lr*0.1", ..., or "all"
  Options options;                      ///< current values; a schedule changes "lr" here
  double base_lr = 0;                   ///< what schedules multiply
  std::vector<std::string> parameters;  ///< names, in the model's order
  bool is_scheduled = false;            ///< a schedule has begun to set the options
};

/// What the options come to in one update, in an order that the rule chooses.
using Coefficients = std::array<double, 12>;

/// A stretch of one parameter that a rule updates. T is float or double.
template <class T>
struct Stretch {
  T* parameter;
  const T* gradient;
  T* const* state;     ///< one pointer for each of the rule's state arrays
  std::int64_t count;  ///< at most kPieceElements for a rule that has `needs`
};

/// What a rule must know before it can update.
struct Needs {
  bool gradient_norm = false;  ///< the 2-norm of all gradients as one vector, as they enter the update
  bool sums = false;           ///< sums over each whole parameter
};

/// Sums over a whole parameter, in an order that the rule chooses.
using Sums = std::array<double, 2>;

struct TensorUpdate;  // of tensor_update.hpp
struct TensorChange;
class Minimisation;  // of minimisation.hpp

using Shape = std::vector<std::int64_t>;

/// A row of the table of optimizers: a per-element rule, with `needs` a per-tensor one, or with `is_whole` one that
/// works on whole parameters. A user's program adds rows.
struct Rule {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< its own keys of section `optim`, with PyTorch's names and defaults
  /// The rule's own options, checked; build_groups adds lr, weight_decay and maximize, which every rule reads.
  Options (*read)(const Section& optim);
  /// Names of the state arrays in use under `options` ("momentum_buffer"; "exp_avg", "exp_avg_sq"). Options may
  /// lengthen the list but not change its beginning: the groups of one optimizer share the longest.
  std::vector<std::string> (*state_names)(const Options& options);
  /// @param step  updates of the parameter including this one, from 1
  Coefficients (*coefficients)(const Options& options, std::int64_t step) = nullptr;
  void (*update32)(const Coefficients& coefficients, const Stretch<float>& stretch) = nullptr;
  void (*update64)(const Coefficients& coefficients, const Stretch<double>& stretch) = nullptr;
  /// The same for parameters on a GPU; null: as for the built-in rule of this name.
  void (*update_tensors)(const TensorUpdate& update) = nullptr;

  /// update_tensors is all there is, on the CPU too, and gets tensors of the parameters' shapes. Every parameter then
  /// has one owner.
  bool is_whole = false;
  /// The shape of a state array for parameters of this shape, for a rule that is whole; nullopt: these have none. Null:
  /// that of the parameter.
  std::optional<Shape> (*state_shape)(const Options& options, std::size_t slot, const Shape& parameter) = nullptr;

  /// In the place of all updates, for a rule that is whole and has one group: a step that evaluates the loss as often
  /// as it likes.
  void (*minimise)(Minimisation& problem) = nullptr;
  /// Names of the numbers that such a rule remembers from step to step: 0 at first, and never negative.
  std::vector<std::string> numbers = {};

  /// Null: nothing. Where it says so, all stretches are measured before the first is updated. Measuring may write to
  /// the state; what it returns is summed over the parameter by one fixed tree, with the same bits whoever owns which
  /// part.
  Needs (*needs)(const Options& options) = nullptr;
  /// Learns the norm of all gradients, before any measuring.
  void (*adapt_to_norm)(Coefficients& coefficients, const Options& options, double gradient_norm) = nullptr;
  Sums (*measure32)(const Coefficients& coefficients, const Stretch<float>& stretch) = nullptr;
  Sums (*measure64)(const Coefficients& coefficients, const Stretch<double>& stretch) = nullptr;
  /// Learns the sums over the parameter.
  void (*adapt)(Coefficients& coefficients, const Options& options, const Sums& sums, const Segment& segment) = nullptr;
  /// Every step counts for every parameter, even where there was no gradient.
  bool counts_every_step = false;
  /// The value of a state array before the first update of its parameter. Null: 0.
  double (*initial_state)(const Options& options, std::size_t slot) = nullptr;
};

/// The built-in rules.
const std::vector<Rule>& builtin_rules();
/// @throws ConfigError  unknown name, with the known ones and the nearest
const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules = builtin_rules());
/// The keys of section `optim`: the common ones and those of every rule.
KeySpecs optim_keys(const std::vector<Rule>& rules = builtin_rules());

/// What a parameter is, for building groups.
struct ParameterInfo {
  std::string name;
  std::int64_t dims = 0;          ///< dimensions of its shape
  std::int64_t count = 0;         ///< elements
  bool is_norm = false;           ///< of a batch, instance, group or layer norm
  bool is_depthwise = false;      ///< of a two-dimensional convolution with as many groups as input channels
  bool is_offset = false;         ///< of a layer inside a deformable convolution, which tells it where to look
  bool is_frozen = false;         ///< not trained: in no group
  std::string same_as = {};       ///< the name under which the same tensor came before; empty: it did not
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

/// What a step that evaluated the loss several times did. The same on every rank.
struct Minimised {
  std::int64_t evaluations = 0;
  double grad_norm = 0;  ///< where the step began; not finite: no parameter was changed
};

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
  /// The same for a rule that minimises.
  /// @param evaluate  runs forward and backward of the whole step with the parameters as they are, and returns its mean
  ///                  loss: the same number on every rank, and again for the same parameters
  /// Collective like `evaluate`, FlatParameters::finish_gradients and write.
  Minimised minimise(const std::function<double()>& evaluate);

  const Rule& rule() const noexcept { return *rule_; }
  std::vector<ParamGroup>& groups() noexcept { return groups_; }
  const std::vector<ParamGroup>& groups() const noexcept { return groups_; }
  /// The group of a segment.
  std::size_t group_of(std::size_t block, std::size_t segment) const { return group_of_.at(block).at(segment); }

  /// State for checkpoints. `slot` numbers the rule's state arrays; the span is laid out like `block`, unless the rule
  /// says otherwise by state_shape. Each rank writes
  /// what it owns; where parameters are shared, all see the whole.
  const std::vector<std::string>& state_names() const noexcept { return state_names_; }
  std::span<std::byte> state(std::size_t block, std::size_t slot);
  /// The part of one segment; nullopt: the rule keeps no such state of it.
  std::optional<StateArray> state_of(std::size_t block, std::size_t segment, std::size_t slot) const;
  /// Updates that each segment of `block` has had, the same on every rank.
  std::span<std::int64_t> steps(std::size_t block);
  /// Rule::numbers, the same on every rank.
  std::map<std::string, double>& numbers() noexcept { return numbers_; }
  const std::map<std::string, double>& numbers() const noexcept { return numbers_; }
  /// See Minimisation::memo.
  std::any& memo() noexcept { return memo_; }

 private:
  using Changes = std::span<const GradientChange>;  // by group
  template <class Visit>
  void visit_stretches(Changes changes, bool is_last, const Visit& visit);
  template <class T, class Visit>
  void visit_stretch(const GradientPiece& piece, const GradientChange& change, bool is_last, const Visit& visit);
  const Options& options_of(std::size_t block, std::size_t segment) const {
    return groups_[group_of_[block][segment]].options;
  }
  void allocate_state(std::size_t block);
  void initialize_state();
  void visit_pieces(Changes changes, const std::function<void(const GradientPiece&)>& visit);
  void step_whole(Changes changes);
  void add_to(TensorUpdate& update, std::size_t block, std::size_t segment, const Tensor& parameter,
              const Tensor& gradient) const;
  Needs needs() const;
  void learn_norm(Changes changes);
  void learn_sums(Changes changes);
  void count_step();

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
