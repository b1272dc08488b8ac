// SPDX-License-Identifier: BSD-3-Clause
// Updates of tensors by LibTorch's foreach operations: one launch per operation for all tensors of an update, however
// many there are. They compute what the loops of the rules compute, with another rounding.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>

#include "optim/rules/coefficients.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

using List = TensorList;

/// sign * gradient + l2_coefficient * parameter; may be the gradients themselves.
template <class Coefficients>
List decayed_gradients(const TensorUpdate& update, const Coefficients& c) {
  if (c.l2_coefficient == 0) return downhill(update);
  if (c.sign > 0) return at::_foreach_add(update.gradients, update.parameters, c.l2_coefficient);
  List gradients = at::_foreach_neg(update.gradients);
  at::_foreach_add_(gradients, update.parameters, c.l2_coefficient);
  return gradients;
}

/// mean = factor * mean + (1 - factor) * square of the gradient.
void add_squares(const List& square, const List& gradients, double factor) {
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

List quotients(const List& list, const Number& divisor) {
  if (!divisor.is_live()) return at::_foreach_div(list, divisor.plain());
  return at::_foreach_div(list, divisor.live(list.front().scalar_type()));
}

at::Tensor divided(const at::Tensor& tensor, const Number& divisor) {
  return divisor.is_live() ? tensor / divisor.live(tensor.scalar_type()) : tensor / divisor.plain();
}

/// Multiplies each part of a stack by a number of its own: [] float64.
void scale_parts(const TensorStack& stack, const List& factors) {
  stack.rows().mul_(stack.by_row(factors).to(stack.rows().scalar_type()));
}

/// How far each parameter moves in relation to its size.
/// @param gradient_norms  [P] float64, as parameter_norms
/// @return                [P] float64
at::Tensor trust_ratios(const TensorUpdate& update, const Number& lr, const at::Tensor& parameter_norms,
                        const at::Tensor& gradient_norms) {
  const Options& options = *update.options;
  const bool is_joint = options.at("joint_norm") != 0;
  const at::Tensor divisors =
      is_joint ? gradient_norms : gradient_norms + options.at("weight_decay") * parameter_norms + options.at("eps");
  const at::Tensor ratios = options.at("trust_coefficient") * parameter_norms / divisors;
  return options.at("trust_clip") != 0 ? divided(ratios, lr).clamp_max_(1.0) : ratios;
}

/// Scales the steps of the parameters that `is_adapted` names: where a norm is 0 the step stays, or is the gradient.
/// @param plain  the gradients, where these are the steps of parameters that are not adapted; else undefined
template <class IsAdapted>
void adapt_by_trust(const TensorUpdate& update, const TensorStack& steps, const at::Tensor& plain, const Number& lr,
                    const IsAdapted& is_adapted) {
  const bool is_joint = update.options->at("joint_norm") != 0;
  const at::Tensor parameter_norms = at::stack(norms_of(update.parameters));
  const at::Tensor gradient_norms = at::stack(norms_of(is_joint ? steps.parts() : update.gradients));
  const at::Tensor is_zero = (parameter_norms == 0).logical_or_(gradient_norms == 0);
  const at::Tensor ratios = trust_ratios(update, lr, parameter_norms, gradient_norms).masked_fill_(is_zero, 1);
  const at::Tensor one = at::ones({}, ratios.options());
  List factors = ratios.unbind();
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] = is_adapted(i) ? factors[i] : one;
  scale_parts(steps, factors);
  if (plain.defined()) steps.rows().copy_(at::where(steps.by_row(is_zero.unbind()), plain, steps.rows()));
}

template <class IsAdapted>
void update_by_trust(const TensorUpdate& update, bool is_larc, const IsAdapted& is_adapted) {
  const Options& options = *update.options;
  const LiveCoefficients<LarsCoefficients> c(update, lars_coefficients);
  const TensorStack steps = TensorStack::of(update.gradients);
  if (c->sign < 0) steps.rows().neg_();
  const bool measures = options.at("weight_decay") != 0 || options.at("always_adapt") != 0;
  at::Tensor plain;  // larc does not decay where it does not adapt
  if (measures && is_larc && c->l2_coefficient != 0) plain = steps.rows().clone();
  if (c->l2_coefficient != 0) at::_foreach_add_(steps.parts(), update.parameters, c->l2_coefficient);
  if (measures) adapt_by_trust(update, steps, plain, c.number(&LarsCoefficients::lr), is_adapted);
  descend(update, steps.parts(), /*weight_decay=*/0, /*maximize=*/false);
}

/// The factors of lamb's directions: [] float64 of each.
/// @param parameter_norms, step_norms  [P] float64
List factors_of_lamb(const Options& options, const at::Tensor& parameter_norms, const at::Tensor& step_norms) {
  const at::Tensor is_adapted = (parameter_norms > 0).logical_and_(step_norms > 0);
  const at::Tensor ratios = (parameter_norms / step_norms).masked_fill_(is_adapted.logical_not(), 1);
  return (options.at("trust_clip") != 0 ? ratios.clamp_max_(1.0) : ratios).unbind();
}

/// Directions without the elements that oppose the gradient: the fewer are left, the longer they are.
void be_cautious(const TensorStack& directions, const List& gradients) {
  const TensorStack agreement = TensorStack::of(gradients);
  agreement.rows().mul_(directions.rows()).gt_(0);
  List shares = at::_foreach_norm(agreement.parts(), 1);  // sums of 0 and 1
  std::vector<at::Scalar> counts;
  for (const at::Tensor& part : agreement.parts()) counts.emplace_back(static_cast<double>(part.numel()));
  at::_foreach_div_(shares, counts);
  directions.rows().mul_(agreement.rows()).div_(agreement.by_row(shares).clamp_min_(1e-3));
}

}  // namespace

void update_adadelta_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AdadeltaCoefficients> c(update, adadelta_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    add_squares(changed.states[0], gradients, c->rho);
    const List steps = root_of_sum(changed.states[1], c->eps);
    at::_foreach_div_(steps, root_of_sum(changed.states[0], c->eps));
    at::_foreach_mul_(steps, gradients);
    add_squares(changed.states[1], steps, c->rho);
    add_multiple(changed.parameters, steps, -c.number(&AdadeltaCoefficients::lr));
  });
}

void update_adamax_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AdamaxCoefficients> c(update, adamax_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    at::_foreach_lerp_(changed.states[0], gradients, 1 - c->beta1);
    const List magnitudes = at::_foreach_abs(gradients);
    at::_foreach_add_(magnitudes, c->eps);
    at::_foreach_mul_(changed.states[1], c->beta2);
    at::_foreach_maximum_(changed.states[1], magnitudes);
    add_quotient(changed.parameters, changed.states[0], changed.states[1], -c.number(&AdamaxCoefficients::step_size));
  });
}

void update_asgd_tensors(const TensorUpdate& update) {
  const LiveCoefficients<AsgdCoefficients> c(update, asgd_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    multiply(changed.parameters, c.number(&AsgdCoefficients::decay_factor));
    add_multiple(changed.parameters, gradients, -c.number(&AsgdCoefficients::step_size));
    if (c.chosen([](const auto& given) { return given.average_share == 1; })) {
      at::_foreach_copy_(changed.states[0], changed.parameters);
    } else {
      move_towards(changed.states[0], changed.parameters, c.number(&AsgdCoefficients::average_share));
    }
  });
}

void update_lion_tensors(const TensorUpdate& update) {
  const LiveCoefficients<LionCoefficients> c(update, lion_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = downhill(changed);
    const TensorStack directions = TensorStack::of(changed.states[0]);
    at::_foreach_lerp_(directions.parts(), gradients, 1 - c->beta1);
    directions.rows().sign_();
    if (c->caution != 0) be_cautious(directions, gradients);
    multiply(changed.parameters, c.number(&LionCoefficients::decay_factor));
    add_multiple(changed.parameters, directions.parts(), -c.number(&LionCoefficients::lr));
    at::_foreach_lerp_(changed.states[0], gradients, 1 - c->beta2);
  });
}

void update_nadam_tensors(const TensorUpdate& update) {
  const LiveCoefficients<NadamCoefficients> c(update, nadam_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    at::_foreach_lerp_(changed.states[0], gradients, 1 - c->beta1);
    add_squares(changed.states[1], gradients, c->beta2);
    const List denominators =
        root_plus(quotients(changed.states[1], c.number(&NadamCoefficients::correction2)), c->eps);
    multiply(changed.parameters, c.number(&NadamCoefficients::decay_factor));
    add_quotient(changed.parameters, gradients, denominators, -c.number(&NadamCoefficients::gradient_step));
    add_quotient(changed.parameters, changed.states[0], denominators, -c.number(&NadamCoefficients::mean_step));
  });
}

void update_radam_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RAdamCoefficients> c(update, radam_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    at::_foreach_lerp_(changed.states[0], gradients, 1 - c->beta1);
    add_squares(changed.states[1], gradients, c->beta2);
    multiply(changed.parameters, c.number(&RAdamCoefficients::decay_factor));
    const Number step_size = c.number(&RAdamCoefficients::step_size);
    if (c.chosen([](const auto& given) { return given.is_rectified; })) {
      add_quotient(changed.parameters, changed.states[0], root_plus(changed.states[1], c->eps), -step_size);
    } else {
      add_multiple(changed.parameters, changed.states[0], -step_size);
    }
  });
}

void update_rmsprop_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RmsPropCoefficients> c(update, rmsprop_coefficients);
  change_unless_void(update, [&](const TensorUpdate& changed) {
    const List gradients = decayed_gradients(changed, *c);
    add_squares(changed.states[0], gradients, c->alpha);
    List variances = changed.states[0];
    if (c->is_centered) {
      at::_foreach_lerp_(changed.states[1], gradients, 1 - c->alpha);
      variances = at::_foreach_addcmul(changed.states[0], changed.states[1], changed.states[1], -1);
      at::_foreach_clamp_min_(variances, 0);  // rounding may have made them negative
    }
    const List denominators = root_plus(variances, c->eps);
    const Number lr = c.number(&RmsPropCoefficients::lr);
    if (c->momentum == 0) return add_quotient(changed.parameters, gradients, denominators, -lr);
    const List& velocity = changed.states[c->is_centered ? 2 : 1];
    at::_foreach_mul_(velocity, c->momentum);
    at::_foreach_addcdiv_(velocity, gradients, denominators, 1);
    add_multiple(changed.parameters, velocity, -lr);
  });
}

void update_rprop_tensors(const TensorUpdate& update) {
  const LiveCoefficients<RpropCoefficients> c(update, rprop_coefficients);
  const double first_size =
      c.chosen([](const auto& coefficients) { return coefficients.first_size; });  // lr in the first update, then 0
  const TensorStack gradients = TensorStack::of(update.gradients);
  const TensorStack previous = TensorStack::of(update.states[0]);
  const TensorStack sizes = TensorStack::of(update.states[1]);
  if (c->sign < 0) gradients.rows().neg_();
  const at::Tensor agreement = previous.rows().mul_(gradients.rows());
  const at::Tensor grows = agreement > 0;
  const at::Tensor shrinks = agreement < 0;
  const at::Tensor factors = agreement.fill_(1).masked_fill_(grows, c->grow).masked_fill_(shrinks, c->shrink);
  if (first_size != 0) sizes.rows().add_(first_size);
  sizes.rows().mul_(factors).clamp_(c->min_size, c->max_size);
  gradients.rows().masked_fill_(shrinks, 0);  // it waits for one step when the sign changes
  at::Tensor directions = previous.rows();
  at::sign_out(directions, gradients.rows());
  List changed = at::_foreach_addcmul(update.parameters, previous.parts(), sizes.parts(), -1);
  changed.insert(changed.end(), gradients.parts().begin(), gradients.parts().end());
  changed.insert(changed.end(), sizes.parts().begin(), sizes.parts().end());
  assign(update, tensors_of(update), changed);
}

void update_lars_tensors(const TensorUpdate& update) {
  const bool adapts_vectors = update.options->at("adapt_vectors") != 0;
  update_by_trust(update, /*is_larc=*/false, [&](std::size_t i) { return adapts_vectors || update.dims[i] != 1; });
}

void update_larc_tensors(const TensorUpdate& update) {
  update_by_trust(update, /*is_larc=*/true, [](std::size_t) { return true; });
}

void update_lamb_tensors(const TensorUpdate& update) {
  const Options& options = *update.options;
  const LiveCoefficients<LambCoefficients> c(update, lamb_coefficients);
  const bool adapts = options.at("weight_decay") != 0 || options.at("always_adapt") != 0;
  change_unless_void(update, [&](const TensorUpdate& changed) {
    List gradients = downhill(changed);
    if (options.at("max_grad_norm") != 0) {
      const at::Tensor divisor = (update.gradient_norm / options.at("max_grad_norm")).clamp_min_(1.0);
      gradients = at::_foreach_div(gradients, divisor.to(gradients.front().scalar_type()));
    }
    at::_foreach_mul_(changed.states[0], c->beta1);
    at::_foreach_add_(changed.states[0], gradients, c->gradient_share);
    add_squares(changed.states[1], gradients, c->beta2);
    const List denominators = at::_foreach_sqrt(changed.states[1]);
    divide(denominators, c.number(&LambCoefficients::root_correction2));
    at::_foreach_add_(denominators, c->eps);
    const TensorStack directions = TensorStack::of(changed.states[0]);
    divide({directions.rows()}, c.number(&LambCoefficients::correction1));
    at::_foreach_div_(directions.parts(), denominators);
    if (c->l2_coefficient != 0) at::_foreach_add_(directions.parts(), changed.parameters, c->l2_coefficient);
    if (adapts) {
      const Number size_of_decay(update, [](const Options& given, std::int64_t step) {
        return std::abs(lamb_coefficients(given, step).decay_factor);
      });
      scale_parts(directions, factors_of_lamb(options, product(at::stack(norms_of(changed.parameters)), size_of_decay),
                                              at::stack(norms_of(directions.parts()))));
    }
    multiply(changed.parameters, c.number(&LambCoefficients::decay_factor));
    add_multiple(changed.parameters, directions.parts(), -c.number(&LambCoefficients::step_size));
  });
}

}  // namespace lockstep::optim
