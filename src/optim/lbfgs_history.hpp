// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "optim/closure_step.hpp"

namespace lockstep::optim {

/// State arrays of lbfgs.
enum LbfgsState : std::size_t { kDirection, kLastGradient, kSteps, kChanges };

/// A step, and what it did to the gradient.
struct Curvature {
  Vector step;
  Vector change;
};

/// Of the last steps, and of what they did to the gradient: what is known of the curvature.
///
/// Directions are found from the products of all these vectors with each other and with the gradient, so that one
/// collective brings all that an iteration has to know. Products are kept from step to step; they are formed again
/// where they are not those of the vectors.
class LbfgsHistory {
 public:
  /// Collective.
  explicit LbfgsHistory(ClosureStep& step);

  /// What `downhill` must know, after what `measures` already requests.
  /// @param gradient  where the search is now; outlives the measures, as `found` does
  /// @param found     on the way there
  void ask(std::vector<ClosureStep::Measure>& measures, const Vector& gradient,
           const std::optional<Curvature>& found) const;
  /// Learns from `found`, unless it curves too little, and gives the gradient times the inverse curvature, downhill.
  /// @param measured  the answers
  Vector downhill(std::span<const double> measured, const Vector& gradient, const std::optional<Curvature>& found);

 private:
  using Matrix = std::vector<std::vector<double>>;
  struct Products {
    Matrix of_both;     // [i][j] step i . change j, oldest first
    Matrix of_changes;  // [i][j] change i . change j
  };
  /// About one pair.
  struct Answers {
    double step_slope;    // step . gradient
    double change_slope;  // change . gradient
    // What was found, times this pair.
    double step_by_change = 0;  // step of this, change of that
    double change_by_change = 0;
    double change_by_step = 0;
  };

  void take(std::int64_t learnt);
  void form_products();
  void learn(const Curvature& found, std::span<const Answers> answers);
  Vector direction(const Vector& gradient, std::span<const Answers> answers) const;

  ClosureStep* step_;
  std::int64_t size_;
  std::vector<Curvature> pairs_;  // oldest first
  Products* products_;            // of pairs_, in the step's memo
};

}  // namespace lockstep::optim
