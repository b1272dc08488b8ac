// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::parallel {

/// Learns in one step how often the graph uses each parameter, and determines in later steps when a gradient is
/// complete.
/// Not collective.
class StaticGraph {
 public:
  /// @param parameters  the number of parameters
  explicit StaticGraph(std::size_t parameters) : uses_(parameters) {}

  /// Begins a step that follows the one from which the graph was learned.
  void begin_step();
  /// Forgets what was learned.
  void forget();

  /// Notes a use in the step from which the graph is learned.
  void learn_use(std::size_t parameter);
  /// All parameters in the order of their last use in that step. Unused ones come last.
  std::vector<std::size_t> order_of_last_use() const;
  bool is_unused(std::size_t parameter) const { return uses_[parameter].per_step == 0; }

  /// The position of a use among the uses of a parameter in one step. Beyond: there were fewer in the learned step.
  enum class Use { earlier, last, beyond };
  /// Counts a use in a later step.
  Use count_use(std::size_t parameter);

 private:
  struct Uses {
    int in_step = 0;   // so far, in this step
    int per_step = 0;  // number of uses in each step, as learned
    int last = 0;      // position of the last use among all uses of the learned step
  };
  std::vector<Uses> uses_;  // uses of each parameter
  int count_ = 0;           // uses of all parameters, while they are learned
};

}  // namespace lockstep::parallel
