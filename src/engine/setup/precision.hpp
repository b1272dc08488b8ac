// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optimizer.hpp>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/keys/cited.hpp"

namespace lockstep::engine {

/// The settings of train.precision and of loss scaling.
struct Precision {
  Cited<std::string> name = {"fp32"};
  at::ScalarType parameters = at::kFloat;
  std::optional<at::ScalarType> autocast = {};  ///< type of forwards and losses under autocast; none = no autocast
  std::optional<optim::GradScalerOptions> scaler = {};  ///< set if the type is float16

  /// Keys precision, loss_scale, init_scale, growth_factor, backoff_factor and growth_interval of section `train`.
  static KeySpecs keys();
  /// @throws ConfigError  keys of loss scaling that cannot work, or that have no effect with this precision
  static Precision from(const Section& train);
  /// The same for forward passes alone: losses are not scaled, whatever these keys are.
  static Precision without_scaling(const Section& train);
};

/// Which products of float32 numbers a run computes in TF32: convolutions, all or none.
/// @param tf32       value of run.tf32
/// @param precision  value of train.precision
/// @return           none on the CPU and with fp64, whatever the keys are
/// @throws ConfigError  run.tf32=none contradicts train.precision=tf32
std::string products_in_tf32(const Cited<std::string>& tf32, const Cited<std::string>& precision, c10::Device device);

/// Has GPUs compute these products of float32 numbers in TF32 from now on, and all others exactly, in this process.
/// @param tf32  convolutions (those of cuDNN, with recurrent layers, as PyTorch does), all or none
void set_float32_products(const std::string& tf32);

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
