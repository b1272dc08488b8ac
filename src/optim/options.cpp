// SPDX-License-Identifier: BSD-3-Clause
#include "optim/options.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::optim {

KeySpecs shared_option_keys() {
  return {
      keys::real("optim.lr", "0.001", "base learning rate, which sched.rule multiplies; sgd mostly wants more, lbfgs 1",
                 0),
      keys::real(
          "optim.weight_decay", "0",
          "pull towards zero: added to the gradient, or decoupled from it by adamw and lion (0.01 is usual there)", 0),
      keys::boolean("optim.maximize", "false", "climb instead of descend")};
}

void read_shared_options(const Section& optim, Options& options) {
  read_numbers(optim, options, {"lr", "weight_decay"});
  read_flags(optim, options, {"maximize"});
}

KeySpec betas_key() {
  return keys::reals(
      "optim.betas", "0.9, 0.999",
      "adam and its kin, lamb, lion (0.9, 0.99 there): decay rates of the mean and of the mean square of the "
      "gradient, both below 1",
      0, 1);
}

void read_betas(const Section& optim, Options& options) {
  const std::vector<double> betas = optim.reals("betas");
  const bool are_below_one = std::all_of(betas.begin(), betas.end(), [](double beta) { return beta < 1; });
  if (betas.size() != 2 || !are_below_one) {
    throw ConfigError(optim.cite("betas") + " must be two numbers in [0, 1), such as 0.9, 0.999");
  }
  options["beta1"] = betas[0];
  options["beta2"] = betas[1];
}

KeySpec eps_key() {
  return keys::real("optim.eps", "1e-8",
                    "added to what an update is divided by; usual are 1e-10 for adagrad, 1e-6 for adadelta and lamb",
                    0);
}

KeySpec amsgrad_key() {
  return keys::boolean("optim.amsgrad", "false", "adam, adamw: divide by the largest mean square so far");
}

KeySpec decoupled_weight_decay_key() {
  return keys::boolean("optim.decoupled_weight_decay", "false",
                       "nadam, radam, lamb: shrink the parameter instead of changing the update");
}

KeySpec trust_clip_key() {
  return keys::boolean("optim.trust_clip", "false",
                       "lars, larc: never step further than lr allows; lamb: nor than without the ratio");
}

KeySpec always_adapt_key() {
  return keys::boolean("optim.always_adapt", "false",
                       "lars, lamb: adapt to the parameter's norm also where weight_decay is 0");
}

KeySpecs momentum_keys() {
  return {keys::real("optim.momentum", "0",
                     "sgd, rmsprop, lars, larc: share of the last velocity that is kept; often 0.9", 0),
          keys::real("optim.dampening", "0", "sgd, lars, larc: share of the gradient that does not enter the velocity",
                     0, 1),
          keys::boolean("optim.nesterov", "false",
                        "sgd, lars, larc: look ahead along the velocity; needs momentum and no dampening")};
}

void read_momentum(const Section& optim, Options& options) {
  read_numbers(optim, options, {"momentum", "dampening"});
  read_flags(optim, options, {"nesterov"});
  if (options.at("nesterov") == 0 || (options.at("momentum") != 0 && options.at("dampening") == 0)) return;
  throw ConfigError(optim.cite("nesterov") + " needs optim.momentum > 0 and optim.dampening = 0");
}

void read_numbers(const Section& optim, Options& options, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) options[key] = optim.real(key);
}

void read_flags(const Section& optim, Options& options, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) options[key] = optim.boolean(key) ? 1 : 0;
}

std::optional<double> positive_number(const std::string& text) {
  const KeySpec spec = keys::real_above("number", 0, keys::kUnlimited, "1", "");
  if (!fault_in(spec, text).empty()) return std::nullopt;
  Section section;
  section.declare(spec);
  section.set("number", text, "");
  return section.real("number");
}

std::string joined(const std::vector<std::string>& names, const std::string& separator) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() || name.empty() ? "" : separator) + name;
  return text;
}

GradientTerms gradient_terms(const Options& options, bool is_decoupled) {
  const double weight_decay = options.at("weight_decay");
  return {.sign = options.at("maximize") != 0 ? -1.0 : 1.0,
          .l2_coefficient = is_decoupled ? 0 : weight_decay,
          .decay_factor = is_decoupled ? 1 - options.at("lr") * weight_decay : 1};
}

double bias_correction(double beta, std::int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

}  // namespace lockstep::optim
