// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/precision.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/hook.hpp>

#include "batch/libtorch_versions.hpp"

namespace lockstep::engine {

namespace {

/// A resolved configuration names every key: what has its default says nothing.
void require_default(const Section& train, const std::string& key, const std::string& why) {
  const KeyValue& value = train.values().at(key);
  if (value.texts.front() != value.spec.default_value) throw ConfigError(train.cite(key) + " " + why);
}

void require_valid(const Section& train, const optim::GradScalerOptions& options) {
  try {
    optim::GradScaler{options};
  } catch (const ConfigError& error) {
    const char* const scale = options.is_dynamic ? "init_scale" : "loss_scale";
    throw ConfigError(train.cite(options.backoff_factor < 1 ? scale : "backoff_factor") + ": " + error.what());
  }
}

/// The options with train.precision=fp16.
optim::GradScalerOptions scaler_options(const Section& train) {
  optim::GradScalerOptions options =
      optim::GradScalerOptions::parse(train.text("loss_scale"), train.cite("loss_scale"));
  if (options.is_dynamic) {
    options.init_scale = train.real("init_scale");
  } else {
    require_default(train, "init_scale", "requires train.loss_scale=dynamic; a constant scale has no initial value");
  }
  options.growth_factor = train.real("growth_factor");
  options.backoff_factor = train.real("backoff_factor");
  options.growth_interval = train.integer("growth_interval");
  require_valid(train, options);
  return options;
}

}  // namespace

KeySpecs Precision::keys() {
  return {
      keys::choice("train.precision", "fp32",
                   "Precision of the computation. bf16, fp16 = mixed precision: matrix products and convolutions in 16 "
                   "bits, parameters in fp32; tf32 = TF32 on GPUs; fp64 = all computations in float64",
                   {"fp32", "fp64", "bf16", "fp16", "tf32"}),
      keys::text("train.loss_scale", "dynamic",
                 "fp16: factor on the loss before backward. Either a number, or dynamic = the scale is adapted during "
                 "the run"),
      keys::real_above("train.init_scale", 0, 1e38, "65536", "fp16: initial value of the dynamic loss scale"),
      keys::real_above("train.growth_factor", 1, 1e6, "2",
                       "fp16: growth of the dynamic loss scale after train.growth_interval steps"),
      keys::real_above("train.backoff_factor", 0, 1, "0.5",
                       "fp16: factor on the dynamic loss scale after a skipped step"),
      keys::integer("train.growth_interval", "2000",
                    "fp16: number of steps with finite gradients after which the loss scale grows", 1, kMaxSteps),
  };
}

Precision Precision::without_scaling(const Section& train) {
  Precision precision{.name = cited_text(train, "precision")};
  const std::string& name = precision.name.value;
  if (name == "fp64") precision.parameters = at::kDouble;
  if (name == "bf16") precision.autocast = at::kBFloat16;
  if (name == "fp16") precision.autocast = at::kHalf;
  return precision;
}

Precision Precision::from(const Section& train) {
  Precision precision = without_scaling(train);
  const std::string& name = precision.name.value;
  if (name == "fp16") {
    precision.scaler = scaler_options(train);
    return precision;
  }
  for (const char* key : {"loss_scale", "init_scale", "growth_factor", "backoff_factor", "growth_interval"}) {
    require_default(train, key, "requires train.precision=fp16; with " + name + " losses are not scaled");
  }
  return precision;
}

std::string products_in_tf32(const Cited<std::string>& tf32, const Cited<std::string>& precision, c10::Device device) {
  const bool is_all = precision.value == "tf32";
  if (is_all && tf32.value == "none") {
    throw ConfigError(tf32.cite + ": none contradicts " + precision.cite + ", which is tf32; use train.precision=fp32");
  }
  if (!device.is_cuda() || precision.value == "fp64") return "none";
  return is_all ? "all" : tf32.value;
}

void set_float32_products(const std::string& tf32) {
  const auto set = [](const char* operation, bool is_tf32) {
    set_cuda_float32_precision(operation, is_tf32 ? "tf32" : "ieee");
  };
  set("conv", tf32 != "none");
  set("rnn", tf32 != "none");
  set("matmul", tf32 == "all");
}

}  // namespace lockstep::engine
