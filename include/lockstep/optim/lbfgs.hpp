// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::optim {

struct LbfgsOptions {
  double lr = 1;  ///< length of a step along the direction; with strong_wolfe where the search begins
  std::int64_t max_iterations = 20;
  std::int64_t max_evaluations = 0;  ///< 0: 5/4 of max_iterations
  double tolerance_gradient = 1e-7;  ///< stop once no element of the gradient is larger
  double tolerance_change = 1e-9;    ///< stop once neither a parameter nor the loss changes by more
  std::size_t history_size = 100;    ///< steps that the curvature is learnt from
  bool strong_wolfe = false;         ///< search along the direction instead of stepping by lr
};

/// Minimises a function of a flat vector by limited-memory BFGS. It is no row of the table of rules: one step calls the
/// function several times, and needs all parameters in one place, whole. T is float or double.
/// Source: Nocedal and Wright, Numerical Optimization, algorithms 7.4, 3.5 and 3.6; stopping as torch.optim.LBFGS.
template <class T>
class Lbfgs {
 public:
  /// Returns the loss at `x` and fills its gradient, of the same size.
  using Function = std::function<double(std::span<const T> x, std::span<T> gradient)>;

  /// @throws ConfigError  an option out of range
  explicit Lbfgs(const LbfgsOptions& options);

  /// At most max_iterations iterations from `x`, which becomes where they end. Not collective.
  /// @return  the loss at the `x` given
  double step(std::span<T> x, const Function& function);

 private:
  using Vector = std::vector<T>;
  struct Change {
    Vector of_x;
    Vector of_gradient;
    double inverse_product;  ///< 1 / (of_x * of_gradient)
  };

  void learn(const Vector& gradient);
  void choose_direction(const Vector& gradient);

  LbfgsOptions options_;
  std::int64_t iterations_ = 0;
  std::vector<Change> history_;  // oldest first
  Vector direction_;
  double length_ = 0;  // of the last step, in units of direction_
  double scale_ = 1;   // of the first guess of the inverse curvature
  Vector last_gradient_;
};

}  // namespace lockstep::optim
