// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/comm_hook.hpp>

#include <cstddef>
#include <vector>

namespace lockstep::parallel {

/// The communication hook of a reducer, if it has one, and the reductions that the hook has started.
class HookSlot {
 public:
  /// @throws ConfigError  there is a hook already, `hook` is empty, or a step was run
  void set(CommHook hook, bool is_silent, bool has_stepped);

  bool has_hook() const noexcept { return static_cast<bool>(hook_); }
  /// Whether the hook sends nothing.
  bool is_silent() const noexcept { return is_silent_; }

  /// Passes bucket number `b` to the hook.
  void start(std::size_t b, const GradBucket& bucket);
  /// Waits for the hook's result for bucket number `b` and stores it in the bucket.
  /// @throws ConfigError  the result differs from the bucket in size or type
  void finish(std::size_t b, const GradBucket& bucket);

 private:
  CommHook hook_;
  bool is_silent_ = false;
  std::vector<Completion> completions_;  // completion of each bucket
};

}  // namespace lockstep::parallel
