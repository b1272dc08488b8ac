// SPDX-License-Identifier: BSD-3-Clause
#include "optim/rules/options.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>

namespace lockstep::optim {

namespace {

/// Adds "beta1" and "beta2".
void read_betas(const Section& optim, Options& options) {
  const std::vector<double> betas = optim.reals("betas");
  const bool are_below_one = std::all_of(betas.begin(), betas.end(), [](double beta) { return beta < 1; });
  if (betas.size() != 2 || !are_below_one) {
    throw ConfigError(optim.cite("betas") + " must be two numbers in [0, 1), such as 0.9, 0.999");
  }
  options["beta1"] = betas[0];
  options["beta2"] = betas[1];
}

}  // namespace

KeySpec lr_key(const std::string& default_value) {
  return keys::real("optim.lr", default_value, "Base learning rate, which the schedule multiplies", 0);
}

KeySpec weight_decay_key(const std::string& default_value) {
  return keys::real(
      "optim.weight_decay", default_value,
      "Weight decay: added to the gradient as an L2 penalty, or decoupled from it in adamw, lion, muon and adafactor",
      0);
}

KeySpecs shared_option_keys() {
  return {lr_key("0.001"), weight_decay_key("0"),
          keys::expert(keys::boolean("optim.maximize", "false", "Maximize the loss instead of minimizing it"))};
}

KeySpec betas_key(const std::string& default_value) {
  return keys::reals("optim.betas", default_value,
                     "Decay rates of the first and second moments of the gradient, both below 1", 0, 1);
}

KeySpec eps_key(const std::string& default_value) {
  return keys::real("optim.eps", default_value, "Term added to the denominator for numerical stability", 0);
}

KeySpec decoupled_weight_decay_key() {
  return keys::boolean("optim.decoupled_weight_decay", "false",
                       "nadam, radam, lamb: apply weight decay to the parameter instead of the gradient");
}

KeySpec trust_clip_key() {
  return keys::boolean("optim.trust_clip", "false",
                       "lars, larc, lamb: limit the trust ratio so that it never lengthens a step");
}

KeySpec always_adapt_key() {
  return keys::boolean("optim.always_adapt", "false",
                       "lars, lamb: use the trust ratio also for parameters without weight decay");
}

KeySpecs momentum_keys() {
  return {keys::real("optim.momentum", "0", "sgd, rmsprop, lars, larc, muon: momentum factor; usually 0.9", 0),
          keys::real("optim.dampening", "0", "sgd, lars, larc, muon: dampening of the momentum", 0, 1),
          keys::boolean("optim.nesterov", "false",
                        "sgd, lars, larc, muon: Nesterov momentum; requires momentum > 0 and dampening = 0")};
}

Options read_momentum(const Section& optim) {
  const Options options = read_keys(optim, momentum_keys());
  if (options.at("nesterov") == 0 || (options.at("momentum") != 0 && options.at("dampening") == 0)) return options;
  throw ConfigError(optim.cite("nesterov") + " requires optim.momentum > 0 and optim.dampening = 0");
}

Options read_keys(const Section& optim, const KeySpecs& keys) {
  Options options;
  for (const KeySpec& key : keys) {
    const std::string name = key.name.substr(key.name.find('.') + 1);
    if (key.type == KeyType::real) options[name] = optim.real(name);
    if (key.type == KeyType::boolean) options[name] = optim.boolean(name) ? 1 : 0;
    if (name == "betas") read_betas(optim, options);
  }
  return options;
}

std::vector<std::string> momentum_states(const Options& options) {
  if (options.at("momentum") == 0) return {};
  return {"momentum_buffer"};
}

std::vector<std::string> moment_states(const Options&) { return {"exp_avg", "exp_avg_sq"}; }

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

}  // namespace lockstep::optim
