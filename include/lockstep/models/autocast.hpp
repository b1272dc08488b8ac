// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep::models {

/// While one lives, this thread computes matrix products and convolutions of float32 tensors in 16 bits, and what needs
/// more range or precision (losses, norms, sums) in float32. Parameters and their gradients stay float32.
///
/// A backward is not run under it: it follows the types of its forward. May be nested.
class Autocast {
 public:
  /// @param type  bfloat16 or float16, as the device offers
  /// @throws std::invalid_argument  another type
  Autocast(c10::DeviceType device, c10::ScalarType type);
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool was_enabled_;
  c10::ScalarType type_before_;
};

}  // namespace lockstep::models
