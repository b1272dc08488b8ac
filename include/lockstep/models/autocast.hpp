// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

namespace lockstep::models {

/// During its lifetime, this thread computes matrix products and convolutions of float32 tensors in 16 bits, and
/// operations that need more range or precision (losses, norms, sums) in float32. Parameters and their gradients stay
/// in float32.
///
/// Do not run backward inside it: backward uses the types of forward. Can be nested.
class Autocast {
 public:
  /// @param type  bfloat16 or float16, if the device supports it
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
