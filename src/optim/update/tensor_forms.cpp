// SPDX-License-Identifier: BSD-3-Clause
// Updates by LibTorch's fused kernels: one launch for all tensors of an update.
//
// Errors of the kernels of GPUs, beside the loops of the CPU: the learning rate of a recorded step is rounded to
// float32 (6e-8 of each change), also where parameters are float64. Adam computes with float32 betas where parameters
// are float32: 1 - 0.999 differs by 1.3e-5, in the second moment as in its bias correction, so that it cancels in the
// first update and stays below 7e-6 of a change in later ones. Adagrad computes its step size and its quotients in
// float64.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>
#include <map>
#include <optional>

#include "optim/rules/arithmetic.hpp"
#include "optim/rules/rules.hpp"
#include "optim/update/live_numbers.hpp"
#include "optim/update/tensor_rules.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// A number as a captured step passes it to the kernels: those of GPUs read float32, those of CPUs float64.
at::Tensor live_rate(const TensorUpdate& update, const Number& rate) {
  return rate.live(update.parameters.front().is_cpu() ? at::kDouble : at::kFloat);
}

at::Tensor live_lr(const TensorUpdate& update) {
  return live_rate(update, Number(update, [](const Options& options, std::int64_t) { return options.at("lr"); }));
}

/// [] float32: the number of an update in the memory of a GPU, without a launch in most steps: some thousand numbers
/// are written at a time.
at::Tensor number_on(at::Device device, std::int64_t number) {
  constexpr std::int64_t kNumbers = 4096;
  struct Numbers {
    std::int64_t first = 0;
    at::Tensor values;
  };
  static auto& by_device = *new std::map<at::DeviceIndex, Numbers>;  // not destroyed after the device's allocator
  Numbers& numbers = by_device[device.index()];
  const std::int64_t first = number / kNumbers * kNumbers;
  if (!numbers.values.defined() || numbers.first != first) {
    numbers.values = at::arange(first, first + kNumbers, at::TensorOptions().dtype(at::kFloat).device(device));
    numbers.first = first;
  }
  return numbers.values.select(0, number - first);
}

/// The number of updates of each parameter, as the kernels read it.
TensorList steps_of(const TensorUpdate& update) {
  const at::Device device = update.parameters.front().device();
  const Number count(update, [](const Options&, std::int64_t step) { return static_cast<double>(step); });
  const at::Tensor step = count.is_live()    ? count.live(at::kFloat)
                          : device.is_cuda() ? number_on(device, update.step)
                                             : at::full({}, count.plain(), at::kFloat);
  return TensorList(update.parameters.size(), step);
}

/// @param fused  at::_fused_adam_ or at::_fused_adamw_, which differ in what weight decay does
template <class Fused>
void update_adam_by(const Fused& fused, const TensorUpdate& update) {
  const Options& options = *update.options;
  const bool is_amsgrad = options.at("amsgrad") != 0;
  const TensorList steps = steps_of(update);
  const auto run = [&](const auto& lr) {
    fused(update.parameters, update.gradients, update.states[0], update.states[1],
          is_amsgrad ? update.states[2] : TensorList(), steps, lr, options.at("beta1"), options.at("beta2"),
          options.at("weight_decay"), options.at("eps"), is_amsgrad, options.at("maximize") != 0,
          std::optional<at::Tensor>(), optional(update.is_void));
  };
  update.live != nullptr ? run(live_lr(update)) : run(options.at("lr"));
}

/// Updates the moments as Adam does, and adds `factor` times what it would subtract for a learning rate of 1.
void add_adam_steps(const TensorUpdate& update, const TensorList& targets, const TensorList& gradients,
                    const TensorList& means, double factor) {
  const Options& options = *update.options;
  const at::TensorOptions number = targets.front().options().dtype(at::kFloat);
  const TensorList steps = options.at("bias_correction") != 0
                               ? steps_of(update)
                               : TensorList(targets.size(), at::full({}, INFINITY, number));  // corrections of 1
  at::_fused_adam_(targets, gradients, means, update.states[1], {}, steps, /*lr=*/-factor, options.at("beta1"),
                   options.at("beta2"), /*weight_decay=*/0, options.at("eps"), /*amsgrad=*/false,
                   options.at("maximize") != 0, {}, optional(update.is_void));
}

/// The share of the steps that is taken, for each row of the stack: [R, 1] float64.
/// @param steps  for a learning rate of 1
at::Tensor trust_ratios(const TensorUpdate& update, const TensorStack& stack, const TensorList& steps) {
  const Options& options = *update.options;
  const TensorList norms = stack.by_row(norms_of(concatenated(update.parameters, steps))).chunk(2);
  const auto decay_size = [](const Options& given, std::int64_t) {
    return std::abs(1 - given.at("lr") * given.at("weight_decay"));
  };
  const bool is_decoupled = options.at("decoupled_weight_decay") != 0;
  at::Tensor ratios = (is_decoupled ? product(norms[0], Number(update, decay_size)) : norms[0]).div(norms[1]);
  ratios.nan_to_num_(/*nan=*/1, /*posinf=*/1);  // a norm is 0: then 1
  at::threshold_(ratios, /*threshold=*/0, /*value=*/1);
  return options.at("trust_clip") != 0 ? ratios.clamp_max_(1) : ratios;
}

void update_lamb_stack(const TensorUpdate& update) {
  const Options& options = *update.options;
  const auto [needs_gradient_norm, needs_sums] = needs_of_lamb(options);
  const double weight_decay = options.at("weight_decay");
  const bool is_decoupled = options.at("decoupled_weight_decay") != 0;
  const std::size_t count = update.parameters.size();
  const TensorStack stack = TensorStack::of(concatenated(update.parameters, update.gradients));
  const TensorList steps(stack.parts().begin(), stack.parts().begin() + std::ssize(update.parameters));
  const TensorList gradients(stack.parts().begin() + std::ssize(update.parameters), stack.parts().end());
  if (needs_gradient_norm) {
    const at::Tensor norm = update.gradient_norm / Coefficient(options.at("max_grad_norm"));
    stack.rows_of(count, count).div_(norm.clamp_min(1));
  }
  at::Tensor rows = stack.rows_of(0, count);
  is_decoupled || weight_decay == 0 ? rows.zero_() : rows.mul_(weight_decay);
  if (options.at("grad_averaging") != 0) {
    add_adam_steps(update, steps, gradients, update.states[0], /*factor=*/1);
  } else {  // Adam's mean is the stored one times the share of the gradient
    const double share = 1 - options.at("beta1");
    const TensorList means = at::_foreach_mul(update.states[0], share);
    add_adam_steps(update, steps, gradients, means, /*factor=*/1 / share);
    at::_foreach_div_(means, share);
    assign(update, update.states[0], means);
  }
  if (needs_sums) rows.mul_(trust_ratios(update, stack, steps).to(rows.scalar_type()));
  descend(update, steps, is_decoupled ? weight_decay : 0, /*maximize=*/false);
}

}  // namespace

void descend(const TensorUpdate& update, const TensorList& directions, double weight_decay, bool maximize) {
  const auto option = [&options = *update.options](const char* name) {
    const auto found = options.find(name);
    return found == options.end() ? 0 : found->second;
  };
  const double momentum = option("momentum");
  const bool is_first_step = is_first(update);
  const auto run = [&](const auto& lr) {
    at::_fused_sgd_(update.parameters, directions, momentum != 0 ? update.states[0] : TensorList(), weight_decay,
                    momentum, lr, option("dampening"), option("nesterov") != 0, maximize, is_first_step, {},
                    optional(update.is_void));
  };
  update.live != nullptr ? run(live_lr(update)) : run(option("lr"));
}

void update_sgd_tensors(const TensorUpdate& update) {
  descend(update, update.gradients, update.options->at("weight_decay"), update.options->at("maximize") != 0);
}

void update_adam_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adam_(arguments...); }, update);
}

void update_adamw_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adamw_(arguments...); }, update);
}

void update_lamb_tensors(const TensorUpdate& update) {
  for (const TensorUpdate& part : parts_for_stacks(update)) update_lamb_stack(part);
}

void update_adagrad_tensors(const TensorUpdate& update) {
  const Options& options = *update.options;
  // Also where the first update is void: until it is done, the sums are what they begin with.
  if (is_first(update)) {
    const double initial = options.at("initial_accumulator_value");
    at::_foreach_zero_(update.states[0]);
    if (initial != 0) at::_foreach_add_(update.states[0], initial);
  }
  const Number step_size(update, adagrad_step_size);
  const auto run = [&](const auto& rate) {
    at::_fused_adagrad_(update.parameters, update.gradients, update.states[0], steps_of(update), rate,
                        /*lr_decay=*/0, options.at("weight_decay"), options.at("eps"), options.at("maximize") != 0, {},
                        optional(update.is_void));
  };
  update.live != nullptr ? run(live_rate(update, step_size)) : run(step_size.plain());
}

}  // namespace lockstep::optim
