// SPDX-License-Identifier: BSD-3-Clause
// Updates of tensors by LibTorch's foreach operations: one launch per operation for all tensors of an update. They
// compute what the loops of the rules compute, with another rounding.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>

#include "optim/coefficients.hpp"
#include "optim/live_numbers.hpp"
#include "optim/rules.hpp"

namespace lockstep::optim {

namespace {

using List = TensorList;

/// Runs an in-place update of parameters and states. Where update.is_void is 1, they keep their values.
template <class Body>
void change_unless_void(const TensorUpdate& update, const Body& body) {
  if (!update.is_void.defined()) return body();
  List changed = update.parameters;
  for (const List& slot : update.states) {
    for (const at::Tensor& state : slot) {
      if (state.defined()) changed.push_back(state);
    }
  }
  List before;
  for (const at::Tensor& tensor : changed) before.push_back(tensor.clone());
  body();
  const at::Tensor is_void = update.is_void > 0;
  for (std::size_t i = 0; i < changed.size(); ++i) changed[i].copy_(at::where(is_void, before[i], changed[i]));
}

/// sign * gradient + l2_coefficient * parameter.
template <class Coefficients>
List decayed_gradients(const TensorUpdate& update, const Coefficients& c) {
  List gradients = at::_foreach_mul(update.gradients, c.sign);
  if (c.l2_coefficient != 0) at::_foreach_add_(gradients, update.parameters, c.l2_coefficient);
  return gradients;
}

/// mean = factor * mean + (1 - factor) * square of the gradient.
void add_squares(List square, const List& gradients, double factor) {
  at::_foreach_mul_(square, factor);
  at::_foreach_addcmul_(square, gradients, gradients, 1 - factor);
}

/// sqrt(list) + eps
List root_plus(const List& list, double eps) {
  List root = at::_foreach_sqrt(list);
  at::_foreach_add_(root, eps);
  return root;
}

/// sqrt(list + eps)
List root_of_sum(const List& list, double eps) {
  List sum = at::_foreach_add(list, eps);
  at::_foreach_sqrt_(sum);
  return sum;
}

/// The first tensor where `condition`, element by element.
at::Tensor chosen(const at::Tensor& condition, double then, double otherwise, const at::Tensor& like) {
  return at::where(condition, at::full({}, then, like.options()), at::full({}, otherwise, like.options()));
}

/// The parameter's norm and the gradient's norm as [] tensors of doubles.
at::Tensor norm_of(const at::Tensor& tensor) { return at::linalg_vector_norm(tensor.to(at::kDouble)); }

at::Tensor divided(const at::Tensor& tensor, const Number& divisor) {
  return divisor.is_live() ? tensor / divisor.live(tensor.scalar_type()) : tensor / divisor.plain();
}

List quotients(const List& list, const Number& divisor) {
  if (!divisor.is_live()) return at::_foreach_div(list, divisor.plain());
  return at::_foreach_div(list, divisor.live(list.front().scalar_type()));
}

template <class IsAdapted>
void update_by_trust(const TensorUpdate& update, bool is_larc, const IsAdapted& is_adapted) {
  const Options& options = *update.options;
  const LiveCoefficients<LarsCoefficients> c(update, lars_coefficients);
  const bool measures = options.at("weight_decay") != 0 || options.at("always_adapt") != 0;
  List steps = decayed_gradients(update, *c);
  for (std::size_t i = 0; measures && i < steps.size(); ++i) {
    const at::Tensor parameter_norm = norm_of(update.parameters[i]);
    const at::Tensor gradient_norm = norm_of(c->has_joint_norm ? steps[i] : update.gradients[i]);
    const at::Tensor is_zero = (parameter_norm == 0).logical_or(gradient_norm == 0);
    const at::Tensor divisor = c->has_joint_norm
                                   ? gradient_norm
                                   : gradient_norm + options.at("weight_decay") * parameter_norm + options.at("eps");
    at::Tensor ratio = options.at("trust_coefficient") * parameter_norm / divisor;
    if (options.at("trust_clip") != 0) ratio = divided(ratio, c.number(&LarsCoefficients::lr)).clamp_max(1.0);
    if (is_larc) {
      const at::Tensor plain = update.gradients[i] * c->sign;  // larc does not decay where it does not adapt
      steps[i] = at::where(is_zero, plain, steps[i] * ratio.to(steps[i].scalar_type()));
    } else if (is_adapted(i)) {
      steps[i] = steps[i] * at::where(is_zero, at::ones_like(ratio), ratio).to(steps[i].scalar_type());
    }
  }
  const Number lr = c.number(&LarsCoefficients::lr);
  if (c->momentum == 0) return add_multiple(update.parameters, steps, -lr);
  const List& velocity = update.states[0];
  at::_foreach_mul_(velocity, c->momentum);
  at::_foreach_add_(velocity, steps, c.chosen([](const auto& of) { return of.gradient_share; }));
  if (c->is_nesterov) at::_foreach_add_(steps, velocity, c->momentum);
  add_multiple(update.parameters, c->is_nesterov ? steps : velocity, -lr);
}

}  // namespace

void update_adadelta_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AdadeltaCoefficients> c(update, adadelta_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    add_squares(update.states[0], gradients, c->rho);
    List steps = root_of_sum(update.states[1], c->eps);
    at::_foreach_div_(steps, root_of_sum(update.states[0], c->eps));
    at::_foreach_mul_(steps, gradients);
    add_squares(update.states[1], steps, c->rho);
    add_multiple(update.parameters, steps, -c.number(&AdadeltaCoefficients::lr));
  });
}

void update_adagrad_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AdagradCoefficients> c(update, adagrad_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    if (c.chosen([](const auto& of) { return of.sum_factor; }) == 0) {
      at::_foreach_zero_(update.states[0]);
      at::_foreach_add_(update.states[0], c->initial_sum);
    }
    at::_foreach_addcmul_(update.states[0], gradients, gradients, 1);
    add_quotient(update.parameters, gradients, root_plus(update.states[0], c->eps),
                 -c.number(&AdagradCoefficients::step_size));
  });
}

void update_adamax_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AdamaxCoefficients> c(update, adamax_coefficients);
  change_unless_void(update, [&] {
    List gradients = decayed_gradients(update, *c);
    at::_foreach_lerp_(update.states[0], gradients, 1 - c->beta1);
    at::_foreach_abs_(gradients);
    at::_foreach_add_(gradients, c->eps);
    at::_foreach_mul_(update.states[1], c->beta2);
    at::_foreach_maximum_(update.states[1], gradients);
    add_quotient(update.parameters, update.states[0], update.states[1], -c.number(&AdamaxCoefficients::step_size));
  });
}

void update_asgd_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AsgdCoefficients> c(update, asgd_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    multiply(update.parameters, c.number(&AsgdCoefficients::decay_factor));
    add_multiple(update.parameters, gradients, -c.number(&AsgdCoefficients::step_size));
    if (c.chosen([](const auto& of) { return of.average_share == 1; })) {
      at::_foreach_copy_(update.states[0], update.parameters);
    } else {
      move_towards(update.states[0], update.parameters, c.number(&AsgdCoefficients::average_share));
    }
  });
}

void update_lion_tensors(const TensorUpdate& update) {
  const LiveCoefficients<LionCoefficients> c(update, lion_coefficients);
  change_unless_void(update, [&] {
    const List gradients = at::_foreach_mul(update.gradients, c->sign);
    List directions = at::_foreach_lerp(update.states[0], gradients, 1 - c->beta1);
    at::_foreach_sign_(directions);
    for (std::size_t i = 0; c->caution != 0 && i < directions.size(); ++i) {
      const at::Tensor agrees = (directions[i] * gradients[i] > 0).to(directions[i].scalar_type());
      directions[i].mul_(agrees).div_(agrees.mean().clamp_min(1e-3));
    }
    multiply(update.parameters, c.number(&LionCoefficients::decay_factor));
    add_multiple(update.parameters, directions, -c.number(&LionCoefficients::lr));
    at::_foreach_lerp_(update.states[0], gradients, 1 - c->beta2);
  });
}

void update_nadam_tensors(const TensorUpdate& update) {
  const LiveCoefficients<NadamCoefficients> c(update, nadam_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    at::_foreach_lerp_(update.states[0], gradients, 1 - c->beta1);
    add_squares(update.states[1], gradients, c->beta2);
    const List denominators = root_plus(quotients(update.states[1], c.number(&NadamCoefficients::correction2)), c->eps);
    multiply(update.parameters, c.number(&NadamCoefficients::decay_factor));
    add_quotient(update.parameters, gradients, denominators, -c.number(&NadamCoefficients::gradient_step));
    add_quotient(update.parameters, update.states[0], denominators, -c.number(&NadamCoefficients::mean_step));
  });
}

void update_radam_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RAdamCoefficients> c(update, radam_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    at::_foreach_lerp_(update.states[0], gradients, 1 - c->beta1);
    add_squares(update.states[1], gradients, c->beta2);
    multiply(update.parameters, c.number(&RAdamCoefficients::decay_factor));
    const Number step_size = c.number(&RAdamCoefficients::step_size);
    if (c.chosen([](const auto& of) { return of.is_rectified; })) {
      add_quotient(update.parameters, update.states[0], root_plus(update.states[1], c->eps), -step_size);
    } else {
      add_multiple(update.parameters, update.states[0], -step_size);
    }
  });
}

void update_rmsprop_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RmsPropCoefficients> c(update, rmsprop_coefficients);
  change_unless_void(update, [&] {
    const List gradients = decayed_gradients(update, *c);
    add_squares(update.states[0], gradients, c->alpha);
    List variances = update.states[0];
    if (c->is_centered) {
      at::_foreach_lerp_(update.states[1], gradients, 1 - c->alpha);
      variances = at::_foreach_addcmul(update.states[0], update.states[1], update.states[1], -1);
      at::_foreach_clamp_min_(variances, 0);  // rounding may have made them negative
    }
    const List denominators = root_plus(variances, c->eps);
    const Number lr = c.number(&RmsPropCoefficients::lr);
    if (c->momentum == 0) return add_quotient(update.parameters, gradients, denominators, -lr);
    const List& velocity = update.states[c->is_centered ? 2 : 1];
    at::_foreach_mul_(velocity, c->momentum);
    at::_foreach_addcdiv_(velocity, gradients, denominators, 1);
    add_multiple(update.parameters, velocity, -lr);
  });
}

void update_rprop_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RpropCoefficients> c(update, rprop_coefficients);
  const double first_size = c.chosen([](const auto& of) { return of.first_size; });  // lr in the first update alone
  change_unless_void(update, [&] {
    for (std::size_t i = 0; i < update.parameters.size(); ++i) {
      const at::Tensor gradient = update.gradients[i] * c->sign;
      at::Tensor previous = update.states[0][i];
      at::Tensor size = update.states[1][i];
      const at::Tensor agreement = gradient * previous;
      const at::Tensor factor =
          at::where(agreement > 0, at::full({}, c->grow, size.options()), chosen(agreement < 0, c->shrink, 1, size));
      size.add_(first_size).mul_(factor).clamp_(c->min_size, c->max_size);
      previous.copy_(at::where(agreement < 0, at::zeros({}, size.options()), gradient));
      at::Tensor parameter = update.parameters[i];
      parameter.addcmul_(at::sign(previous), size, -1);
    }
  });
}

void update_lars_tensors(const TensorUpdate& update) {
  const bool adapts_vectors = update.options->at("adapt_vectors") != 0;
  change_unless_void(update, [&] {
    update_by_trust(update, /*is_larc=*/false, [&](std::size_t i) { return adapts_vectors || update.dims[i] != 1; });
  });
}

void update_larc_tensors(const TensorUpdate& update) {
  change_unless_void(update, [&] { update_by_trust(update, /*is_larc=*/true, [](std::size_t) { return true; }); });
}

void update_lamb_tensors(const TensorUpdate& update) {
  const Options& options = *update.options;
  const LiveCoefficients<LambCoefficients> c(update, lamb_coefficients);
  const bool adapts = options.at("weight_decay") != 0 || options.at("always_adapt") != 0;
  change_unless_void(update, [&] {
    List gradients = at::_foreach_mul(update.gradients, c->gradient_scale);
    if (options.at("max_grad_norm") != 0) {
      const at::Tensor divisor = (update.gradient_norm / options.at("max_grad_norm")).clamp_min(1.0);
      at::_foreach_div_(gradients, List(gradients.size(), divisor.to(gradients.front().scalar_type())));
    }
    at::_foreach_mul_(update.states[0], c->beta1);
    at::_foreach_add_(update.states[0], gradients, c->gradient_share);
    add_squares(update.states[1], gradients, c->beta2);
    List denominators = at::_foreach_sqrt(update.states[1]);
    divide(denominators, c.number(&LambCoefficients::root_correction2));
    at::_foreach_add_(denominators, c->eps);
    List directions = quotients(update.states[0], c.number(&LambCoefficients::correction1));
    at::_foreach_div_(directions, denominators);
    if (c->l2_coefficient != 0) at::_foreach_add_(directions, update.parameters, c->l2_coefficient);
    const Number size_of_decay(update, [](const Options& of, std::int64_t step) {
      return std::abs(lamb_coefficients(of, step).decay_factor);
    });
    for (std::size_t i = 0; adapts && i < directions.size(); ++i) {
      const at::Tensor parameter_norm = product(norm_of(update.parameters[i]), size_of_decay);
      const at::Tensor step_norm = norm_of(directions[i]);
      const at::Tensor is_adapted = (parameter_norm > 0).logical_and(step_norm > 0);
      at::Tensor ratio = at::where(is_adapted, parameter_norm / step_norm, at::ones_like(step_norm));
      if (options.at("trust_clip") != 0) ratio = ratio.clamp_max(1.0);
      directions[i].mul_(ratio.to(directions[i].scalar_type()));
    }
    multiply(update.parameters, c.number(&LambCoefficients::decay_factor));
    add_multiple(update.parameters, directions, -c.number(&LambCoefficients::step_size));
  });
}

}  // namespace lockstep::optim
