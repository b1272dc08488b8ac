// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

bool is_matrix(const Shape& shape) { return shape.size() == 2; }

/// About U V^T of a matrix U S V^T: some steps of a quintic Newton-Schulz iteration, whose coefficients bring singular
/// values near 1 fast rather than exactly.
at::Tensor orthogonalized(const at::Tensor& matrix, const Options& options) {
  const bool is_tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = options.at("ns_bf16") != 0 ? matrix.to(at::kBFloat16) : matrix;
  if (is_tall) x = x.t();
  x = x.div(x.norm().clamp_min(options.at("eps")));
  for (int k = 0; k < static_cast<int>(options.at("ns_steps")); ++k) {
    const at::Tensor gram = x.mm(x.t());
    const at::Tensor change = at::addmm(gram, gram, gram, options.at("ns_b"), options.at("ns_c"));
    x = at::addmm(x, change, x, options.at("ns_a"));
  }
  return is_tall ? x.t() : x;
}

/// The same for matrices of one shape: [B, rows, columns].
at::Tensor all_orthogonalized(const at::Tensor& matrices, const Options& options) {
  const bool is_tall = matrices.size(1) > matrices.size(2);
  at::Tensor x = options.at("ns_bf16") != 0 ? matrices.to(at::kBFloat16) : matrices;
  if (is_tall) x = x.transpose(1, 2);
  x = x.div(x.norm(2, {1, 2}, /*keepdim=*/true).clamp_min_(options.at("eps")));
  for (int k = 0; k < static_cast<int>(options.at("ns_steps")); ++k) {
    const at::Tensor gram = x.bmm(x.transpose(1, 2));
    const at::Tensor change = at::baddbmm(gram, gram, gram, options.at("ns_b"), options.at("ns_c"));
    x = at::baddbmm(x, change, x, options.at("ns_a"));
  }
  return is_tall ? x.transpose(1, 2).contiguous() : x;
}

/// The adjustment of the lr, so that updates of matrices of any shape have a similar size.
double adjustment(const Options& options, double rows, double columns) {
  if (options.at("match_rms_adamw") != 0) return 0.2 * std::sqrt(std::max(rows, columns));
  return std::sqrt(std::max(1.0, rows / columns));
}

double decay_of(const Options& options, std::int64_t) { return 1 - options.at("lr") * options.at("weight_decay"); }

void update_matrix(const TensorUpdate& update, std::size_t i) {
  const Options& options = *update.options;
  const at::Tensor& parameter = update.parameters[i];
  const at::Tensor gradient = downhill(update, i);
  const double momentum = options.at("momentum");
  const at::Tensor mean = update.states[0][i].lerp(gradient, 1 - momentum);
  assign(update, update.states[0][i], mean);
  const at::Tensor direction = options.at("nesterov") != 0 ? gradient.lerp(mean, momentum) : mean;
  const auto rows = static_cast<double>(parameter.size(0));
  const auto columns = static_cast<double>(parameter.size(1));
  const Number lr(update, [rows, columns](const Options& values, std::int64_t) {
    return values.at("lr") * adjustment(values, rows, columns);
  });
  const Number decay_factor(update, decay_of);
  move(update, parameter, decay_factor, product(orthogonalized(direction, options).to(parameter.scalar_type()), lr));
}

/// The steps of a learning rate of 1 along `directions`: those of one shape are orthogonalized together.
TensorList steps_along(const TensorList& directions, const Options& options) {
  std::map<Shape, std::vector<std::size_t>> by_shape;
  for (std::size_t i = 0; i < directions.size(); ++i) by_shape[directions[i].sizes().vec()].push_back(i);
  TensorList steps(directions.size());
  for (const auto& [shape, members] : by_shape) {
    TensorList alike;
    for (const std::size_t i : members) alike.push_back(directions[i]);
    const double factor = adjustment(options, static_cast<double>(shape[0]), static_cast<double>(shape[1]));
    auto next = members.begin();
    for (const TensorList& part : divided_for_stacks(alike)) {
      const at::Tensor all = all_orthogonalized(at::stack(part), options).to(part.front().scalar_type()).mul(factor);
      for (const at::Tensor& step : all.unbind()) steps[*next++] = step;
    }
  }
  return steps;
}

/// The form for GPUs: launches for each shape, not for each matrix.
void update_matrices(const TensorUpdate& update) {
  const Options& options = *update.options;
  const double momentum = options.at("momentum");
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const TensorList gradients = downhill(changed);
    at::_foreach_lerp_(changed.states[0], gradients, 1 - momentum);
    const TensorList steps = steps_along(
        options.at("nesterov") != 0 ? at::_foreach_lerp(gradients, changed.states[0], momentum) : changed.states[0],
        options);
    multiply(changed.parameters, Number(update, decay_of));
    add_multiple(changed.parameters, steps,
                 -Number(update, [](const Options& given, std::int64_t) { return given.at("lr"); }));
  });
}

void update_muon(const TensorUpdate& update) {
  std::vector<std::size_t> matrices;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < update.parameters.size(); ++i) {
    const at::Tensor& parameter = update.parameters[i];
    if (parameter.dim() != 2) {
      others.push_back(i);
    } else if (parameter.is_cpu() && parameter.numel() > 0) {
      update_matrix(update, i);
    } else if (parameter.numel() > 0) {
      matrices.push_back(i);
    }
  }
  if (!matrices.empty()) update_matrices(selected(update, matrices));
  if (others.empty()) return;
  TensorUpdate by_adamw = selected(update, others);
  by_adamw.states.erase(by_adamw.states.begin());  // the momentum of matrices
  update_adamw_tensors(by_adamw);
}

Options read_muon(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_numbers(optim, options, {"eps", "momentum"});
  read_flags(optim, options, {"nesterov", "ns_bf16"});
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
  return is_of_matrices == is_matrix(parameter) ? std::optional(parameter) : std::nullopt;
}

KeySpecs muon_keys() {
  KeySpecs keys = momentum_keys();
  keys.push_back(betas_key());
  keys.push_back(eps_key());
  keys.push_back(keys::reals("optim.ns_coefficients", "3.4445, -4.775, 2.0315",
                             "muon: coefficients of the Newton-Schulz polynomial"));
  keys.push_back(keys::integer("optim.ns_steps", "5", "muon: number of Newton-Schulz iterations", 0, 99));
  keys.push_back(keys::boolean("optim.ns_bf16", "true",
                               "muon: orthogonalize in bfloat16. If false, the type of the parameter is used"));
  keys.push_back(keys::choice(
      "optim.adjust_lr_fn", "original",
      "muon: adjustment of the lr to the shape of a matrix; with match_rms_adamw, learning rates of adamw can be used",
      {"original", "match_rms_adamw"}));
  return keys;
}

}  // namespace

Rule muon_rule() {
  return {.name = "muon",
          .help =
              "Muon: orthogonalized momentum for matrices (usually momentum=0.95 and nesterov=true), adamw for other "
              "parameters",
          .keys = muon_keys(),
          .read = read_muon,
          .state_names = muon_state_names,
          .kind = WholeRule{.update = update_muon, .state_shape = muon_state_shape}};
}

}  // namespace lockstep::optim
