// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>

#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/tensor_rules.hpp"

namespace lockstep::optim {

namespace {

/// About U V^T of a matrix U S V^T: some steps of a quintic Newton-Schulz iteration, whose coefficients bring singular
/// values near 1 fast rather than exactly.
/// @param matrices  one, or several of one shape: [B, rows, columns]
at::Tensor orthogonalized(const at::Tensor& matrices, const Options& options) {
  const bool is_one = matrices.dim() == 2;
  const bool is_tall = matrices.size(-2) > matrices.size(-1);
  const auto add_product = [&](const at::Tensor& c, const at::Tensor& a, const at::Tensor& b, double of_c,
                               double of_ab) {
    return is_one ? at::addmm(c, a, b, of_c, of_ab) : at::baddbmm(c, a, b, of_c, of_ab);
  };
  at::Tensor x = options.at("ns_bf16") != 0 ? matrices.to(at::kBFloat16) : matrices;
  if (is_tall) x = x.mT();
  x = x.div(x.norm(2, {-2, -1}, /*keepdim=*/true).clamp_min_(options.at("eps")));
  for (int k = 0; k < static_cast<int>(options.at("ns_steps")); ++k) {
    const at::Tensor gram = is_one ? x.mm(x.t()) : x.bmm(x.mT());
    const at::Tensor change = add_product(gram, gram, gram, options.at("ns_b"), options.at("ns_c"));
    x = add_product(x, change, x, options.at("ns_a"), 1);
  }
  return is_tall ? x.mT().contiguous() : x;
}

/// The adjustment of the lr, so that updates of matrices of any shape have a similar size.
double adjustment(const Options& options, double rows, double columns) {
  if (options.at("match_rms_adamw") != 0) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

double decay_of(const Options& options, std::int64_t) { return 1 - options.at("lr") * options.at("weight_decay"); }

/// The steps along `directions`: those of one shape are orthogonalized together.
TensorList steps_along(const TensorUpdate& update, const TensorList& directions) {
  TensorList steps(directions.size());
  for (const std::vector<std::size_t>& members : alike(directions)) {
    TensorList some;
    for (const std::size_t i : members) some.push_back(directions[i]);
    const at::Tensor matrices = stacked(some);
    const auto rows = static_cast<double>(matrices.size(1));
    const auto columns = static_cast<double>(matrices.size(2));
    const Number lr(update, [rows, columns](const Options& options, std::int64_t) {
      return options.at("lr") * adjustment(options, rows, columns);
    });
    const at::Tensor orthogonal = orthogonalized(matrices.squeeze(0), *update.options).to(matrices.scalar_type());
    const TensorList found = product(orthogonal, lr).view(matrices.sizes()).unbind();
    for (std::size_t k = 0; k < members.size(); ++k) steps[members[k]] = found[k];
  }
  return steps;
}

/// Launches are for each shape, not for each matrix.
void update_matrices(const TensorUpdate& update) {
  const Options& options = *update.options;
  const double momentum = options.at("momentum");
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const TensorList gradients = downhill(changed);
    at::_foreach_lerp_(changed.states[0], gradients, 1 - momentum);
    const TensorList steps =
        steps_along(update, options.at("nesterov") != 0 ? at::_foreach_lerp(gradients, changed.states[0], momentum)
                                                        : changed.states[0]);
    multiply(changed.parameters, Number(update, decay_of));
    at::_foreach_sub_(changed.parameters, steps);
  });
}

void update_muon(const TensorUpdate& update) {
  std::vector<std::size_t> matrices;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < update.parameters.size(); ++i) {
    const at::Tensor& parameter = update.parameters[i];
    if (parameter.numel() > 0) (parameter.dim() == 2 ? matrices : others).push_back(i);
  }
  if (!matrices.empty()) update_matrices(selected(update, matrices));
  if (others.empty()) return;
  TensorUpdate by_adamw = selected(update, others);
  by_adamw.states.erase(by_adamw.states.begin());  // the momentum of matrices
  update_adamw_tensors(by_adamw);
}

KeySpecs muon_keys() {
  KeySpecs keys = momentum_keys();
  for (KeySpec& key : keys) {
    if (key.name == "optim.momentum") key.default_value = "0.95";
    if (key.name == "optim.nesterov") key.default_value = "true";
  }
  keys.insert(
      keys.end(),
      {weight_decay_key("0.1"), betas_key(), eps_key("1e-7"),
       keys::reals("optim.ns_coefficients", "3.4445, -4.775, 2.0315",
                   "muon: coefficients of the Newton-Schulz polynomial"),
       keys::integer("optim.ns_steps", "5", "muon: number of Newton-Schulz iterations", 0, 99),
       keys::boolean("optim.ns_bf16", "true",
                     "muon: orthogonalize in bfloat16. If false, the type of the parameter is used"),
       keys::choice("optim.adjust_lr_fn", "original",
                    "muon: adjustment of the lr to the shape of a matrix; with match_rms_adamw, learning rates of "
                    "adamw can be used",
                    {"original", "match_rms_adamw"})});
  return keys;
}

Options read_muon(const Section& optim) {
  Options options = read_keys(optim, muon_keys());
  options.erase("dampening");
  const std::vector<double> coefficients = optim.reals("ns_coefficients");
  if (coefficients.size() != 3) {
    throw ConfigError(optim.cite("ns_coefficients") + " must be three numbers, such as 3.4445, -4.775, 2.0315");
  }
  options["ns_a"] = coefficients[0];
  options["ns_b"] = coefficients[1];
  options["ns_c"] = coefficients[2];
  options["ns_steps"] = static_cast<double>(optim.integer("ns_steps"));
  options["match_rms_adamw"] = optim.text("adjust_lr_fn") == "match_rms_adamw" ? 1 : 0;
  options["amsgrad"] = 0;  // which adamw reads
  return options;
}

std::vector<std::string> muon_state_names(const Options&) { return {"momentum_buffer", "exp_avg", "exp_avg_sq"}; }

std::optional<Shape> muon_state_shape(const Options&, std::size_t slot, const Shape& parameter) {
  const bool is_of_matrices = slot == 0;
  return is_of_matrices == (parameter.size() == 2) ? std::optional(parameter) : std::nullopt;
}

}  // namespace

Rule muon_rule() {
  return {.name = "muon",
          .help = "Muon: orthogonalized momentum for matrices, adamw for other parameters",
          .keys = muon_keys(),
          .read = read_muon,
          .state_names = muon_state_names,
          .kind = WholeRule{.update = update_muon, .state_shape = muon_state_shape}};
}

}  // namespace lockstep::optim
