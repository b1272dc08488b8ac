// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/flat_parameters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace lockstep::optim {

/// Options of one parameter group: "lr", "momentum", "weight_decay", "beta1", ... by name, as numbers (flags: 0 or 1).
using Options = std::map<std::string, double>;

using Shape = std::vector<std::int64_t>;

/// The numbers that a rule computes from the options once per update of a parameter. Each rule declares its own small
/// struct with named members; this class stores such a struct without its type.
class Coefficients {
 public:
  template <class Named>
  static Coefficients of(const Named& named) {
    Coefficients coefficients;
    coefficients.in_place<Named>() = named;
    return coefficients;
  }
  /// @tparam Named  the struct from which this object was created
  template <class Named>
  Named as() const {
    return const_cast<Coefficients*>(this)->in_place<Named>();
  }
  /// The struct itself, which can be changed.
  template <class Named>
  Named& in_place() {
    static_assert(std::is_trivially_copyable_v<Named> && sizeof(Named) <= sizeof(values_), "a small struct of numbers");
    return *reinterpret_cast<Named*>(values_.data());
  }

 private:
  alignas(double) std::array<std::byte, 384> values_{};
};

/// Consecutive elements of one parameter. T is float or double.
template <class T>
struct ElementRange {
  T* parameter;
  const T* gradient;
  T* const* state;     ///< one pointer per state array of the rule
  std::int64_t count;  ///< a TensorRule gets no more than kPieceElements
};

struct TensorUpdate;  // defined in tensor_update.hpp
struct RowForms;      // the template of a built-in rule, for tensors
class ClosureStep;    // defined in closure_step.hpp

/// Updates whole tensors.
using TensorForm = void (*)(const TensorUpdate& update);

/// Shape of a state array for a parameter of this shape; nullopt = the parameter does not have this array.
using StateShape = std::optional<Shape> (*)(const Options& options, std::size_t slot, const Shape& parameter);

/// A rule that updates every element independently.
struct ElementRule {
  /// @param step  number of the update of the parameter, from 1
  Coefficients (*coefficients)(const Options& options, std::int64_t step);
  void (*update32)(const Coefficients& coefficients, const ElementRange<float>& range);
  void (*update64)(const Coefficients& coefficients, const ElementRange<double>& range);
  TensorForm fused = nullptr;      ///< the same on a GPU by a kernel of LibTorch; null = by `rows`
  const RowForms* rows = nullptr;  ///< null, too = GPUs are not supported

  void update(const Coefficients& c, const ElementRange<float>& range) const { update32(c, range); }
  void update(const Coefficients& c, const ElementRange<double>& range) const { update64(c, range); }
};

/// The quantities that a TensorRule needs before it can update.
struct Needs {
  bool gradient_norm = false;  ///< the 2-norm of all gradients as one vector, as they enter the update
  bool sums = false;           ///< sums over each whole parameter
};

/// Sums over a whole parameter, in an order that the rule chooses.
using Sums = std::array<double, 2>;

/// An element rule with coefficients that depend on sums over the whole parameter. If `needs` requires it, all ranges
/// are measured before the first one is updated. Measuring can write to the state. The results are summed over the
/// parameter by a fixed tree, so that they do not depend on the division among ranks.
struct TensorRule {
  ElementRule elements;
  Needs (*needs)(const Options& options);
  /// Called with the norm of all gradients, before any measuring. Null = not needed.
  void (*adapt_to_norm)(Coefficients& coefficients, double gradient_norm) = nullptr;
  Sums (*measure32)(const Coefficients& coefficients, const ElementRange<float>& range);
  Sums (*measure64)(const Coefficients& coefficients, const ElementRange<double>& range);
  /// Called with the sums over the parameter.
  void (*adapt)(Coefficients& coefficients, const Sums& sums, const Segment& segment);

  Sums measure(const Coefficients& c, const ElementRange<float>& range) const { return measure32(c, range); }
  Sums measure(const Coefficients& c, const ElementRange<double>& range) const { return measure64(c, range); }
};

/// A rule that updates complete parameters as tensors with their shapes, also on the CPU. Every parameter then has one
/// owner.
struct WholeRule {
  TensorForm update;
  StateShape state_shape = nullptr;  ///< null = the shape of the parameter
};

/// A rule with steps that evaluate the loss several times and update all parameters as one vector, on CPUs and GPUs. It
/// has one group; every parameter has one owner.
struct ClosureRule {
  void (*step)(ClosureStep& step);
  StateShape state_shape = nullptr;  ///< null = the shape of the parameter
  /// Names of the numbers that the rule keeps between steps: initially 0, and never negative.
  std::vector<std::string> numbers = {};
};

/// A row of the table of optimizers. A program can append rows to engine::Registry::rules.
struct Rule {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `optim`, with the names and defaults of PyTorch
  /// Reads and checks the options of the rule. build_groups adds lr, weight_decay and maximize.
  Options (*read)(const Section& optim);
  /// Names of the state arrays for `options` ("momentum_buffer"; "exp_avg", "exp_avg_sq"). Options can extend the list,
  /// but not change its start: the groups of one optimizer share the longest list.
  std::vector<std::string> (*state_names)(const Options& options);
  std::variant<ElementRule, TensorRule, WholeRule, ClosureRule> kind;
  /// The initial value of a state array. Null = 0.
  double (*initial_state)(const Options& options, std::size_t slot) = nullptr;
  /// Whether every step is counted for every parameter, even without a gradient.
  bool counts_every_step = false;

  bool uses_closure() const noexcept { return std::holds_alternative<ClosureRule>(kind); }
  /// Whether every parameter must have one owner.
  bool is_whole() const noexcept { return uses_closure() || std::holds_alternative<WholeRule>(kind); }
  /// Whether every parameter must have one owner where updates work on tensors (GPUs): its sums are computed there.
  bool is_whole_on_gpu() const noexcept { return is_whole() || std::holds_alternative<TensorRule>(kind); }
  /// The element rule; null for a WholeRule or ClosureRule.
  const ElementRule* elements() const noexcept;
  /// Whether the rule updates FlatParameters::as_tensors (GPUs).
  bool supports_tensors() const noexcept;
  /// The shape of state arrays; null = the shape of the parameter.
  StateShape state_shape() const noexcept;
};

/// The built-in rules.
const std::vector<Rule>& builtin_rules();
/// @throws ConfigError  the name is unknown; the message states the known names
const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules = builtin_rules());
/// The keys of section `optim`: the common ones and those of every rule.
KeySpecs optim_keys(const std::vector<Rule>& rules = builtin_rules());

struct AverageOptions {
  double decay = 0.9998;                ///< factor on the average when new values are added; in (0, 1)
  double gamma = 100;                   ///< annealing: updates until new values have a small factor; > 0
  std::int64_t interval = 1;            ///< steps between updates of the average; >= 1
  std::vector<std::string> names = {};  ///< patterns of the parameters and buffers that are averaged; empty = all
  bool averages_buffers = false;        ///< floating-point buffers are averaged; false = they are those of the model

  /// Reads section `ema`.
  /// @throws ConfigError  a decay outside of (0, 1)
  static AverageOptions from(const Section& ema);
};

/// A row of the table of averages of weights: average += weight * (values - average). A program can append rows to
/// engine::Registry::averages.
struct AverageRule {
  std::string name;
  std::string help;
  /// Returns the weight of new values, in [0, 1]; the same on every rank.
  /// @param update  number of the update, a multiple of the interval, from 1; update 0 copies the values
  std::function<double(const AverageOptions& options, std::int64_t update)> weight;
};

/// The built-in averages: ema, swa, annealing.
const std::vector<AverageRule>& builtin_averages();
/// The row that ema.kind names; null = no average.
const AverageRule* find_average(const Section& ema, const std::vector<AverageRule>& rules = builtin_averages());
/// The keys of section `ema`, for a choice of these rules.
KeySpecs ema_keys(const std::vector<AverageRule>& rules = builtin_averages());

}  // namespace lockstep::optim
