// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/precision.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>

#include <torch/types.h>

#include "batch/libtorch_versions.hpp"
#include "models/script/parameter_roles.hpp"

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
  KeySpecs keys = {
      keys::choice("train.precision", "fp32",
                   "Precision of the computation. bf16, fp16 = mixed precision: matrix products and convolutions in 16 "
                   "bits, parameters in fp32; tf32 = TF32 on GPUs; fp64 = all computations in float64",
                   {"fp32", "fp64", "bf16", "fp16", "tf32"}),
  };
  const KeySpecs of_fp16 = {
      keys::text("train.loss_scale", "dynamic",
                 "Factor on the loss before backward. Either a number, or dynamic = the scale is adapted during "
                 "the run"),
      keys::real_above("train.init_scale", 0, 1e38, "65536", "Initial value of the dynamic loss scale"),
      keys::real_above("train.growth_factor", 1, 1e6, "2",
                       "Growth of the dynamic loss scale after train.growth_interval steps"),
      keys::real_above("train.backoff_factor", 0, 1, "0.5", "Factor on the dynamic loss scale after a skipped step"),
      keys::integer("train.growth_interval", "2000",
                    "Number of steps with finite gradients after which the loss scale grows", 1, kMaxSteps),
  };
  for (const KeySpec& key : of_fp16) keys.push_back(keys::read_by(key, "train.precision", {"fp16"}));
  return keys;
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

KeySpecs ParamDtypeSettings::keys() {
  return {
      keys::expert(
          keys::choice("train.param_dtype", "fp32",
                       "Type of the parameters and their gradients. bf16 = bfloat16, except in norm layers; requires "
                       "train.precision=bf16",
                       {"fp32", "bf16"})),
      keys::read_by(
          keys::boolean("train.master_weights", "true",
                        "Keep a copy of the parameters in float32, which is updated. If false, updates smaller than "
                        "the resolution of bfloat16 are lost or, with train.stochastic_rounding, have an effect on "
                        "average"),
          "train.param_dtype", {"bf16"}),
      keys::read_by(keys::boolean("train.stochastic_rounding", "false",
                                  "train.master_weights=false: round an updated parameter up or down at random, with "
                                  "probabilities that make the expected value exact"),
                    "train.param_dtype", {"bf16"}),
  };
}

ParamDtypeSettings ParamDtypeSettings::from(const Section& train) {
  const ParamDtypeSettings settings{.dtype = cited_text(train, "param_dtype"),
                                    .has_masters = train.boolean("master_weights"),
                                    .rounds_stochastically = train.boolean("stochastic_rounding")};
  if (!settings.is_half() && !settings.has_masters) {
    throw ConfigError(train.cite("master_weights") + ": false requires train.param_dtype=bf16");
  }
  if (settings.rounds_stochastically && (!settings.is_half() || settings.has_masters)) {
    throw ConfigError(train.cite("stochastic_rounding") +
                      ": true requires train.param_dtype=bf16 and train.master_weights=false");
  }
  return settings;
}

optim::HalfOptions ParamDtypeSettings::half_options(std::uint64_t seed) const {
  return {.has_masters = has_masters, .rounds_stochastically = rounds_stochastically, .seed = seed};
}

std::string ParamDtypeSettings::text() const {
  if (!is_half()) return "";
  if (has_masters) return "bf16 parameters with fp32 master weights";
  return rounds_stochastically ? "bf16 parameters with stochastic rounding" : "bf16 parameters";
}

void require_param_dtype(const ParamDtypeSettings& settings, const Sections& sections, bool uses_closure) {
  if (!settings.is_half()) return;
  const Section& train = sections.at("train");
  const auto refuse = [&settings](const std::string& what, const std::string& why) {
    throw ConfigError(settings.dtype.cite + ": bf16 cannot be combined with " + what + ": " + why);
  };
  if (const std::string& precision = train.text("precision"); precision != "bf16") {
    refuse("train.precision=" + precision, "products are computed in the type of the parameters; use bf16 for both");
  }
  if (train.integer("lanes") > 0) refuse("train.lanes", "lanes are summed in float32 or float64");
  if (!sections.at("strategy").text("post_local").empty()) {
    refuse("strategy.post_local", "averages over ranks would be rounded to 16 bits and replace the master weights");
  }
  if (uses_closure) {
    refuse("optim.name=" + sections.at("optim").text("name"),
           "its line search compares losses at positions in float32");
  }
}

void narrow_parameters(models::Model& model) {
  const torch::NoGradGuard no_grad;
  for (models::ParameterRole& role : models::parameter_roles(model)) {
    const bool is_wide = role.tensor.is_floating_point() && role.tensor.scalar_type() != at::kBFloat16;
    if (is_wide && role.kind != models::LayerKind::norm) role.tensor.set_data(role.tensor.to(at::kBFloat16));
  }
}

}  // namespace lockstep::engine
