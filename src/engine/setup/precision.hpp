// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/optim/grad_scaler.hpp>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

#include "core/cited.hpp"

namespace lockstep::engine {

/// The settings of train.precision and of loss scaling.
struct Precision {
  Cited<std::string> name = {"fp32"};
  at::ScalarType parameters = at::kFloat;
  std::optional<at::ScalarType> autocast = {};          ///< of forwards and losses
  std::optional<optim::GradScalerOptions> scaler = {};  ///< with float16

  /// Keys precision, loss_scale, init_scale, growth_factor, backoff_factor and growth_interval of section `train`.
  static KeySpecs keys();
  /// @throws ConfigError  keys of loss scaling that cannot work, or that have no effect with this precision
  static Precision from(const Section& train);
};

/// Sets the precision of float32 products and convolutions on GPUs in this process: in TF32 with train.precision=tf32,
/// else exactly.
/// @param precision  its name
/// @return  what is to be said where the precision has no effect on `device`; else empty
std::string set_float32_products(const std::string& precision, c10::Device device);

}  // namespace lockstep::engine
