// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/optimizer.hpp>

#include <ATen/core/Tensor.h>

#include <any>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace lockstep::optim {

// Vectors over all parameters, by LibTorch's foreach operations: on a GPU one launch each, however many parameters.

/// Vectors have the length of all parameters together: of each that this rank owns a flat tensor, as it lies in memory.
/// Empty where this rank owns nothing.
using Vector = std::vector<at::Tensor>;

/// a + factor * b
Vector sum(const Vector& a, double factor, const Vector& b);
Vector product(const Vector& a, double factor);
Vector signs(const Vector& a);
/// target += factor * values
void add(const Vector& target, double factor, const Vector& values);
/// target = from
void assign(const Vector& target, const Vector& from);

/// One step of a ClosureRule, which evaluates the loss any number of times. Vectors are held by the owners of the
/// parameters; numbers have the same bits on every rank, so that all ranks decide alike. Functions that return a
/// number, and move_to, are collective. On a GPU the vectors are there too, and the host waits for the numbers alone.
class ClosureStep {
 public:
  /// @param closure  see Optimizer::step_with_closure
  ClosureStep(Optimizer& optimizer, FlatParameters& parameters, const std::function<double()>& closure);
  ClosureStep(const ClosureStep&) = delete;
  ClosureStep& operator=(const ClosureStep&) = delete;

  const Options& options() const { return optimizer_->groups().front().options; }
  std::map<std::string, double>& numbers() { return optimizer_->numbers(); }
  /// Empty at first; what a rule puts there it finds in its next step, unless the program was started again.
  std::any& memo() { return optimizer_->memo(); }
  /// A state array of the parameters' shape, to read and to write.
  Vector state(std::size_t slot) const { return state_row(slot, 0); }
  /// Number `row` of a state array of several such.
  Vector state_row(std::size_t slot, std::int64_t row) const;

  struct LossPoint {
    double loss = 0;
    Vector gradient;  ///< owns its memory; 0 for parameters without a gradient
  };
  /// Evaluates the loss at the current parameters.
  LossPoint evaluate();
  /// The result that has been evaluated so far.
  const ClosureResult& so_far() const noexcept { return so_far_; }

  /// A copy of the parameters.
  Vector position() const;
  /// parameters := from + factor * along.
  void move_to(const Vector& from, double factor, const Vector& along);

  /// A number over whole vectors: a . b, or without b the largest magnitude in a.
  struct Measure {
    const Vector* a;
    const Vector* b = nullptr;
  };
  /// All of them in one collective. Those that share a vector read its memory once if they stand side by side.
  std::vector<double> measure(std::span<const Measure> measures) const;
  double dot(const Vector& a, const Vector& b) const;

 private:
  struct OwnedParameter {
    std::size_t block;
    std::size_t segment;
    std::size_t number;    // among all parameters
    at::Tensor parameter;  // [count]
  };

  Vector gradient_tensors();
  Vector visited_gradients();
  std::vector<double> measure_tensors(std::span<const Measure> measures) const;
  double measure_part(const Measure& measure, std::size_t i, std::int64_t begin, std::int64_t count) const;

  Optimizer* optimizer_;
  FlatParameters* parameters_;
  TensorParameters* tensors_;  // null unless updates work on tensors
  const std::function<double()>* closure_;
  std::vector<OwnedParameter> owned_;  // sorted by block and segment
  std::size_t parameter_count_ = 0;
  ClosureResult so_far_;
};

}  // namespace lockstep::optim
