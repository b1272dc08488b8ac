// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/optimizers.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/tensor_rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kRows, kColumns, kElements };  // state arrays

double eps1_of(const Options& options, at::ScalarType type) {
  if (options.at("eps1") != 0) return options.at("eps1");
  return type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

kernels::AdafactorNumbers numbers_of(const Options& options, std::int64_t count, at::ScalarType type) {
  const auto step = static_cast<double>(count);
  return {.take = std::pow(step, options.at("beta2_decay")),
          .sign = options.at("maximize") != 0 ? -1.0 : 1.0,
          .relative_lr = std::min(options.at("lr"), 1 / std::sqrt(step)),
          .decay_factor = 1 - options.at("lr") * options.at("weight_decay"),
          .eps1 = eps1_of(options, type),
          .eps2 = options.at("eps2"),
          .d = options.at("d")};
}

/// Those of each tensor in a stack: [B, 1, ...].
at::Tensor root_mean_squares(const at::Tensor& stack) {
  if (stack.dim() == 1) return stack.abs();  // one number each
  std::vector<std::int64_t> dims(static_cast<std::size_t>(stack.dim() - 1));
  std::iota(dims.begin(), dims.end(), 1);
  return stack.norm(2, dims, /*keepdim=*/true).div_(std::sqrt(static_cast<double>(stack.numel() / stack.size(0))));
}

/// Along one dimension, which stays with size 1.
at::Tensor mean_square(const at::Tensor& gradients, std::int64_t dim) {
  return gradients.norm(2, dim, /*keepdim=*/true).square_().div_(gradients.size(dim));
}

/// Moves the mean squares of a stack of parameters by `take` towards those of the gradients. Returns one for each
/// element.
at::Tensor learn(const TensorUpdate& changed, const at::Tensor& gradients, const Number& take, double eps1) {
  const auto moved = [&](std::size_t slot, const at::Tensor& squares) {
    const at::Tensor means = moved_towards(stacked(changed.states[slot]), squares, take);
    at::_foreach_copy_(changed.states[slot], means.unbind());
    return means;
  };
  if (gradients.dim() < 3) return moved(kElements, gradients.square());
  const at::Tensor rows = moved(kRows, mean_square(gradients, -1));
  const at::Tensor columns = moved(kColumns, mean_square(gradients, -2));
  return rows.mul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
}

/// Parameters of one shape and any layout, with the same number of launches however many there are.
void update_alike(const TensorUpdate& update) {
  const at::ScalarType type = update.parameters.front().scalar_type();
  const auto number = [&](double kernels::AdafactorNumbers::*member) {
    return Number(update, [type, member](const Options& options, std::int64_t step) {
      return numbers_of(options, step, type).*member;
    });
  };
  const kernels::AdafactorNumbers numbers = numbers_of(*update.options, update.step, type);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const at::Tensor parameters = stacked(changed.parameters);
    const at::Tensor gradients = stacked(downhill(changed));
    const at::Tensor lr = root_mean_squares(parameters).clamp_min_(numbers.eps2);
    multiply({lr}, number(&kernels::AdafactorNumbers::relative_lr));
    const at::Tensor squares = learn(changed, gradients, number(&kernels::AdafactorNumbers::take), numbers.eps1);
    const at::Tensor directions = squares.clamp_min(numbers.eps1 * numbers.eps1).rsqrt_().mul_(gradients);
    directions.mul_(lr.div_(root_mean_squares(directions).div_(numbers.d).clamp_min_(1)));
    const at::Tensor decayed = product(parameters, number(&kernels::AdafactorNumbers::decay_factor));
    at::_foreach_copy_(changed.parameters, decayed.sub_(directions).unbind());
  });
}

/// The same for a matrix that lies row by row in the host's memory, in fewer passes over it.
template <class T>
void update_rows(const TensorUpdate& update) {
  const at::Tensor& parameter = update.parameters.front();
  const std::int64_t rows = parameter.size(-2);
  const std::int64_t columns = parameter.size(-1);
  kernels::update_by_adafactor({.parameters = parameter.mutable_data_ptr<T>(),
                                .gradients = update.gradients.front().const_data_ptr<T>(),
                                .of_rows = update.states[kRows].front().mutable_data_ptr<T>(),
                                .of_columns = update.states[kColumns].front().mutable_data_ptr<T>(),
                                .count = parameter.numel() / rows / columns,
                                .rows = rows,
                                .columns = columns},
                               numbers_of(*update.options, update.step, parameter.scalar_type()));
}

bool lies_in_rows(const TensorUpdate& update) {
  const at::Tensor& parameter = update.parameters.front();
  return parameter.is_cpu() && parameter.dim() >= 2 && parameter.is_contiguous() && !update.is_void.defined() &&
         update.live == nullptr;
}

void update_adafactor(const TensorUpdate& update) {
  for (const std::vector<std::size_t>& members : alike(update.parameters)) {
    const TensorUpdate some = selected(update, members);
    if (!lies_in_rows(some)) {
      update_alike(some);
    } else if (some.parameters.front().scalar_type() == at::kDouble) {
      update_rows<double>(some);
    } else {
      update_rows<float>(some);
    }
  }
}

KeySpecs adafactor_keys() {
  return {lr_key("0.01"),
          keys::real("optim.beta2_decay", "-0.8",
                     "adafactor: exponent of the decay of the second moments, step^beta2_decay", -keys::kUnlimited, 0),
          keys::real(
              "optim.eps1", "0",
              "adafactor: minimum root mean square of the gradient. 0 = the machine epsilon of the parameter type", 0),
          keys::real("optim.eps2", "0.001", "adafactor: minimum parameter size for relative steps", 0),
          keys::real_above("optim.d", 0, keys::kUnlimited, "1",
                           "adafactor: clipping threshold for the root mean square of an update")};
}

std::vector<std::string> adafactor_state_names(const Options&) { return {"row_var", "col_var", "variance"}; }

std::optional<Shape> adafactor_state_shape(const Options&, std::size_t slot, const Shape& parameter) {
  if ((slot == kElements) != (parameter.size() < 2)) return std::nullopt;
  Shape shape = parameter;
  if (slot != kElements) shape[shape.size() - (slot == kRows ? 1 : 2)] = 1;
  return shape;
}

}  // namespace

Rule adafactor_rule() {
  return rule_of_keys<adafactor_keys>(
      "adafactor",
      "Adafactor: factored second moments (means over rows and columns) and steps relative to the size of the "
      "parameter",
      adafactor_state_names, WholeRule{.update = update_adafactor, .state_shape = adafactor_state_shape});
}

}  // namespace lockstep::optim
