// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/param_dtype.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include "models/script/parameter_roles.hpp"

namespace lockstep::engine {

KeySpecs ParamDtypeSettings::keys() {
  return {
      keys::choice("train.param_dtype", "fp32",
                   "Type of the parameters and their gradients. bf16 = bfloat16, except in norm layers; requires "
                   "train.precision=bf16",
                   {"fp32", "bf16"}),
      keys::boolean("train.master_weights", "true",
                    "train.param_dtype=bf16: keep a copy of the parameters in float32, which is updated. If false, "
                    "updates smaller than the resolution of bfloat16 are lost or, with train.stochastic_rounding, have "
                    "an effect on average"),
      keys::boolean("train.stochastic_rounding", "false",
                    "train.master_weights=false: round an updated parameter up or down at random, with probabilities "
                    "that make the expected value exact"),
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
