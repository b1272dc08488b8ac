// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>
#include <lockstep/optim/flat_parameters.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
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

/// The numbers that a rule computes from the options, once for each update of a parameter. Each rule declares its own
/// small struct of them, with names; this holds such a struct without its type.
class Coefficients {
 public:
  template <class Named>
  static Coefficients of(const Named& named) {
    require<Named>();
    Coefficients coefficients;
    std::memcpy(coefficients.values_.data(), &named, sizeof named);
    return coefficients;
  }
  /// @tparam Named  the struct that this was made of
  template <class Named>
  Named as() const {
    require<Named>();
    Named named;
    std::memcpy(static_cast<void*>(&named), values_.data(), sizeof named);
    return named;
  }

 private:
  using Values = std::array<double, 12>;
  template <class Named>
  static constexpr void require() {
    static_assert(std::is_trivially_copyable_v<Named> && sizeof(Named) <= sizeof(Values), "a small struct of numbers");
  }

  Values values_{};
};

/// Consecutive elements of one parameter. T is float or double.
template <class T>
struct ElementRange {
  T* parameter;
  const T* gradient;
  T* const* state;     ///< one pointer for each of the rule's state arrays
  std::int64_t count;  ///< at most kPieceElements for a TensorRule
};

struct TensorUpdate;  // of tensor_update.hpp
class ClosureStep;    // of closure_step.hpp

/// Updates whole tensors.
using TensorForm = void (*)(const TensorUpdate& update);

/// Shape of a state array for a parameter of this shape; nullopt = the parameter has no such array.
using StateShape = std::optional<Shape> (*)(const Options& options, std::size_t slot, const Shape& parameter);

/// A rule that updates every element by itself.
struct ElementRule {
  /// @param step  updates of the parameter including this one, from 1
  Coefficients (*coefficients)(const Options& options, std::int64_t step);
  void (*update32)(const Coefficients& coefficients, const ElementRange<float>& range);
  void (*update64)(const Coefficients& coefficients, const ElementRange<double>& range);
  TensorForm update_tensors = nullptr;  ///< the same on a GPU; null: GPUs are refused

  void update(const Coefficients& c, const ElementRange<float>& range) const { update32(c, range); }
  void update(const Coefficients& c, const ElementRange<double>& range) const { update64(c, range); }
};

/// What a TensorRule must know before it can update.
struct Needs {
  bool gradient_norm = false;  ///< the 2-norm of all gradients as one vector, as they enter the update
  bool sums = false;           ///< sums over each whole parameter
};

/// Sums over a whole parameter, in an order that the rule chooses.
using Sums = std::array<double, 2>;

/// An element rule whose coefficients depend on sums over the whole parameter. Where `needs` says so, all ranges are
/// measured before the first is updated. Measuring may write to the state; its result is summed over the parameter by
/// one fixed tree, with the same bits whichever rank owns which part.
struct TensorRule {
  ElementRule elements;
  Needs (*needs)(const Options& options);
  /// Called with the norm of all gradients, before any measuring. Null: needs no norm.
  void (*adapt_to_norm)(Coefficients& coefficients, const Options& options, double gradient_norm) = nullptr;
  Sums (*measure32)(const Coefficients& coefficients, const ElementRange<float>& range);
  Sums (*measure64)(const Coefficients& coefficients, const ElementRange<double>& range);
  /// Called with the sums over the parameter.
  void (*adapt)(Coefficients& coefficients, const Options& options, const Sums& sums, const Segment& segment);

  Sums measure(const Coefficients& c, const ElementRange<float>& range) const { return measure32(c, range); }
  Sums measure(const Coefficients& c, const ElementRange<double>& range) const { return measure64(c, range); }
};

/// A rule that updates whole parameters as tensors of their shapes, on the CPU too. Every parameter then has one owner.
struct WholeRule {
  TensorForm update;
  StateShape state_shape = nullptr;  ///< null = the shape of the parameter
};

/// A rule whose step evaluates the loss several times and moves all parameters as one vector. It has one group; every
/// parameter has one owner.
struct ClosureRule {
  void (*step)(ClosureStep& step);
  StateShape state_shape = nullptr;  ///< null = the shape of the parameter
  /// Names of the numbers that the rule remembers from step to step: 0 at first, and never negative.
  std::vector<std::string> numbers = {};
};

/// A row of the table of optimizers. A user's program adds rows.
struct Rule {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< its own keys of section `optim`, with PyTorch's names and defaults
  /// The rule's own options, checked; build_groups adds lr, weight_decay and maximize, which every rule reads.
  Options (*read)(const Section& optim);
  /// Names of the state arrays in use under `options` ("momentum_buffer"; "exp_avg", "exp_avg_sq"). Options may
  /// lengthen the list but not change its beginning: the groups of one optimizer share the longest.
  std::vector<std::string> (*state_names)(const Options& options);
  std::variant<ElementRule, TensorRule, WholeRule, ClosureRule> kind;
  /// The value of a state array before the first update of its parameter. Null: 0.
  double (*initial_state)(const Options& options, std::size_t slot) = nullptr;
  /// Every step counts for every parameter, even where there was no gradient.
  bool counts_every_step = false;

  bool uses_closure() const noexcept { return std::holds_alternative<ClosureRule>(kind); }
  /// Whether every parameter must have one owner.
  bool is_whole() const noexcept { return uses_closure() || std::holds_alternative<WholeRule>(kind); }
  /// How elements are updated; null for a rule that is whole.
  const ElementRule* elements() const noexcept;
  /// How tensors are updated where FlatParameters::as_tensors; null = they are refused.
  TensorForm tensor_form() const noexcept;
  /// Null: state arrays have the shape of the parameter.
  StateShape state_shape() const noexcept;
};

/// The built-in rules.
const std::vector<Rule>& builtin_rules();
/// @throws ConfigError  unknown name, with the known ones and the nearest
const Rule& find_rule(std::string_view name, const std::vector<Rule>& rules = builtin_rules());
/// The keys of section `optim`: the common ones and those of every rule.
KeySpecs optim_keys(const std::vector<Rule>& rules = builtin_rules());

}  // namespace lockstep::optim
