// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "optim/closure/closure_step.hpp"

namespace lockstep::optim {

/// State arrays of lbfgs.
enum LbfgsState : std::size_t { kDirection, kLastGradient, kSteps, kChanges };

/// A step, and what it did to the gradient.
struct Curvature {
  Vector step;
  Vector change;
};

/// The history of the last steps, and of what they did to the gradient: what is known of the curvature.
///
/// Directions are found from the products of all these vectors with each other and with the gradient, so that one
/// collective brings all that an iteration has to know. Products are kept from step to step; they are formed again
/// where they are not those of the vectors.
class LbfgsHistory {
 public:
  /// Collective.
  explicit LbfgsHistory(ClosureStep& step);

  /// The measures that `downhill` must know, after what `measures` already requests.
  /// @param gradient  where the search is now; outlives the measures, as `found` does
  /// @param found     on the way there
  void ask(std::vector<ClosureStep::Measure>& measures, const Vector& gradient,
           const std::optional<Curvature>& found) const;
  /// Learns from `found`, unless it curves too little, and gives the gradient times the inverse curvature, downhill.
  /// @param measured  the answers
  Vector downhill(std::span<const double> measured, const Vector& gradient, const std::optional<Curvature>& found);

 private:
  using SquareMatrix = std::vector<std::vector<double>>;
  struct Products {
    SquareMatrix of_both;     // [i][j] step i . change j, oldest first
    SquareMatrix of_changes;  // [i][j] change i . change j
  };
  /// About one pair.
  struct PairProducts {
    double step_slope;    // step . gradient
    double change_slope;  // change . gradient
    // The values that were found, times this pair.
    double step_by_change = 0;  // step of this, change of that
    double change_by_change = 0;
    double change_by_step = 0;
  };

  void take(std::int64_t learnt);
  void form_products();
  void learn(const Curvature& found, std::span<const PairProducts> answers);
  Vector direction(const Vector& gradient, std::span<const PairProducts> answers) const;

  ClosureStep* step_;
  std::int64_t size_;
  std::vector<Curvature> pairs_;  // oldest first
  Products* products_;            // products of pairs_, kept in the memo of step_
};

}  // namespace lockstep::optim
