// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <cstdint>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// 16-bit parameters.
struct ParamDtypeSettings {
  Cited<std::string> dtype = {"fp32"};
  bool has_masters = true;
  bool rounds_stochastically = false;

  /// Keys param_dtype, master_weights and stochastic_rounding of section `train`.
  static KeySpecs keys();
  /// @throws ConfigError  a key has no effect
  static ParamDtypeSettings from(const Section& train);

  bool is_half() const { return dtype.value == "bf16"; }
  optim::HalfOptions half_options(std::uint64_t seed) const;
  /// The text for the log and for comparisons with a checkpoint; empty = train.param_dtype=fp32.
  std::string text() const;
};

/// @param sections      train, ddp, strategy and optim are read
/// @param uses_closure  whether the optimizer evaluates closures
/// @throws ConfigError  16-bit parameters cannot be combined with another setting
void require_param_dtype(const ParamDtypeSettings& settings, const Sections& sections, bool uses_closure);

/// Converts the parameters to bfloat16, except those of norm layers, which are few and compute in float32. Buffers keep
/// their types.
void narrow_parameters(models::Model& model);

}  // namespace lockstep::engine
