// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/adafactor.hpp"

#include <lockstep/core/keys.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kRows, kColumns, kElements };  // state arrays

at::Tensor root_mean_square(const at::Tensor& tensor) {
  return tensor.norm().div(std::sqrt(static_cast<double>(tensor.numel())));
}

double eps1_of(const Options& options, at::ScalarType type) {
  if (options.at("eps1") != 0) return options.at("eps1");
  return type == at::kDouble ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon();
}

/// Along one dimension, which stays with size 1.
at::Tensor mean_square(const at::Tensor& gradient, std::int64_t dim) {
  return gradient.norm(2, dim, /*keepdim=*/true).square_().div_(gradient.size(dim));
}

/// Moves the mean squares by `take` towards those of the gradient. Returns one for each element.
at::Tensor learn(const TensorUpdate& update, std::size_t i, const at::Tensor& gradient, const Number& take,
                 double eps1) {
  if (gradient.dim() < 2) {
    const at::Tensor squares = moved_towards(update.states[kElements][i], gradient.square(), take);
    assign(update, update.states[kElements][i], squares);
    return squares;
  }
  const at::Tensor rows = moved_towards(update.states[kRows][i], mean_square(gradient, -1), take);
  const at::Tensor columns = moved_towards(update.states[kColumns][i], mean_square(gradient, -2), take);
  assign(update, update.states[kRows][i], rows);
  assign(update, update.states[kColumns][i], columns);
  return rows.mul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
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

/// Tensors of any layout.
void update_one(const TensorUpdate& update, std::size_t i) {
  const at::Tensor& parameter = update.parameters[i];
  const at::ScalarType type = parameter.scalar_type();
  const auto number = [&](double kernels::AdafactorNumbers::*member) {
    return Number(update, [type, member](const Options& options, std::int64_t step) {
      return numbers_of(options, step, type).*member;
    });
  };
  const kernels::AdafactorNumbers numbers = numbers_of(*update.options, update.step, type);
  const at::Tensor gradient = downhill(update, i);
  const at::Tensor lr = root_mean_square(parameter).clamp_min_(numbers.eps2);
  multiply({lr}, number(&kernels::AdafactorNumbers::relative_lr));
  const at::Tensor squares = learn(update, i, gradient, number(&kernels::AdafactorNumbers::take), numbers.eps1);
  const at::Tensor direction = squares.clamp_min(numbers.eps1 * numbers.eps1).rsqrt_().mul_(gradient);
  direction.mul_(lr.div_(root_mean_square(direction).div_(numbers.d).clamp_min_(1)));
  move(update, parameter, number(&kernels::AdafactorNumbers::decay_factor), direction);
}

/// Those of each tensor in a stack: [B, 1, ...].
at::Tensor root_mean_squares(const at::Tensor& stack) {
  const at::Tensor flat = stack.reshape({stack.size(0), -1});
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(stack.dim()), 1);
  sizes[0] = stack.size(0);
  return flat.norm(2, {1}, /*keepdim=*/false).div_(std::sqrt(static_cast<double>(flat.size(1)))).view(sizes);
}

/// Moves the mean squares of a stack of parameters as `learn` does. Returns one for each element.
at::Tensor all_learned(const TensorUpdate& changed, const at::Tensor& gradients, const Number& take, double eps1) {
  const auto moved = [&](std::size_t slot, const at::Tensor& squares) {
    const at::Tensor means = moved_towards(at::stack(changed.states[slot]), squares, take);
    at::_foreach_copy_(changed.states[slot], means.unbind());
    return means;
  };
  if (gradients.dim() < 3) return moved(kElements, gradients.square());
  const at::Tensor rows = moved(kRows, mean_square(gradients, -1));
  const at::Tensor columns = moved(kColumns, mean_square(gradients, -2));
  return rows.mul(columns).div_(rows.mean(-2, /*keepdim=*/true).clamp_min_(eps1));
}

/// Parameters of one shape, as update_one, with the same number of launches however many there are.
void update_alike(const TensorUpdate& update) {
  const at::ScalarType type = update.parameters.front().scalar_type();
  const auto number = [&](double kernels::AdafactorNumbers::*member) {
    return Number(update, [type, member](const Options& options, std::int64_t step) {
      return numbers_of(options, step, type).*member;
    });
  };
  const kernels::AdafactorNumbers numbers = numbers_of(*update.options, update.step, type);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const at::Tensor parameters = at::stack(changed.parameters);
    at::Tensor gradients = at::stack(changed.gradients);
    if (numbers.sign < 0) gradients.neg_();
    const at::Tensor lr = root_mean_squares(parameters).clamp_min_(numbers.eps2);
    multiply({lr}, number(&kernels::AdafactorNumbers::relative_lr));
    const at::Tensor squares = all_learned(changed, gradients, number(&kernels::AdafactorNumbers::take), numbers.eps1);
    const at::Tensor directions = squares.clamp_min(numbers.eps1 * numbers.eps1).rsqrt_().mul_(gradients);
    directions.mul_(lr.div_(root_mean_squares(directions).div_(numbers.d).clamp_min_(1)));
    multiply({parameters}, number(&kernels::AdafactorNumbers::decay_factor));
    at::_foreach_copy_(changed.parameters, parameters.sub_(directions).unbind());
  });
}

/// The form for GPUs: parameters of one shape together, some at a time.
void update_by_shape(const TensorUpdate& update) {
  std::map<Shape, std::vector<std::size_t>> by_shape;
  for (std::size_t i = 0; i < update.parameters.size(); ++i) {
    if (update.parameters[i].numel() > 0) by_shape[update.parameters[i].sizes().vec()].push_back(i);
  }
  for (const auto& [shape, members] : by_shape) {
    TensorList alike;
    for (const std::size_t i : members) alike.push_back(update.parameters[i]);
    std::size_t first = 0;
    for (const TensorList& part : divided_for_stacks(alike)) {
      const auto next = members.begin() + static_cast<std::ptrdiff_t>(first);
      update_alike(selected(update, {next, next + std::ssize(part)}));
      first += part.size();
    }
  }
}

/// The same for matrices that lie row by row in the host's memory, in fewer passes over it.
template <class T>
void update_rows(const TensorUpdate& update, std::size_t i) {
  const at::Tensor& parameter = update.parameters[i];
  const std::int64_t rows = parameter.size(-2);
  const std::int64_t columns = parameter.size(-1);
  kernels::update_by_adafactor({.parameters = parameter.mutable_data_ptr<T>(),
                                .gradients = update.gradients[i].const_data_ptr<T>(),
                                .of_rows = update.states[kRows][i].mutable_data_ptr<T>(),
                                .of_columns = update.states[kColumns][i].mutable_data_ptr<T>(),
                                .count = parameter.numel() / rows / columns,
                                .rows = rows,
                                .columns = columns},
                               numbers_of(*update.options, update.step, parameter.scalar_type()));
}

bool lies_in_rows(const TensorUpdate& update, std::size_t i) {
  const at::Tensor& parameter = update.parameters[i];
  return parameter.is_cpu() && parameter.dim() >= 2 && parameter.is_contiguous() && !update.is_void.defined() &&
         update.live == nullptr;
}

void update_adafactor(const TensorUpdate& update) {
  if (!update.parameters.front().is_cpu()) return update_by_shape(update);
  for (std::size_t i = 0; i < update.parameters.size(); ++i) {
    if (update.parameters[i].numel() == 0) continue;
    if (!lies_in_rows(update, i)) {
      update_one(update, i);
    } else if (update.parameters[i].scalar_type() == at::kDouble) {
      update_rows<double>(update, i);
    } else {
      update_rows<float>(update, i);
    }
  }
}

KeySpecs adafactor_keys() {
  return {keys::real("optim.beta2_decay", "-0.8",
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
  return {.name = "adafactor",
          .help =
              "Adafactor: factored second moments (means over rows and columns) and steps relative to the size of the "
              "parameter",
          .keys = adafactor_keys(),
          .read = read_keys<adafactor_keys>,
          .state_names = adafactor_state_names,
          .kind = WholeRule{.update = update_adafactor, .state_shape = adafactor_state_shape}};
}

}  // namespace lockstep::optim
