// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

// Random initial values of parameters. A model whose parameters are all loaded from a file needs none.
namespace lockstep::models {

/// While it lives, the draws below leave parameters undefined in this thread, and nothing copies initial values: the
/// caller replaces every parameter before it is used.
class PendingValues {
 public:
  PendingValues() noexcept;
  ~PendingValues();
  PendingValues(const PendingValues&) = delete;
  PendingValues& operator=(const PendingValues&) = delete;

  /// Whether one lives in this thread.
  static bool are_pending() noexcept;
};

/// Fills a tensor with numbers of the default generator, without gradients.
void draw_normal(at::Tensor values, double mean, double deviation);
void draw_uniform(at::Tensor values, double from, double target);

/// The same values with the channels innermost.
at::Tensor with_channels_last(const at::Tensor& values);

}  // namespace lockstep::models
