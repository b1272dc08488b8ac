// SPDX-License-Identifier: BSD-3-Clause
// Updates by LibTorch's fused kernels.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <optional>

#include "optim/live_numbers.hpp"
#include "optim/rules.hpp"

namespace lockstep::optim {

namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// The learning rate as a captured step passes it to the kernels: those of GPUs read float32, those of CPUs float64.
at::Tensor live_lr(const TensorUpdate& update) {
  const Number lr(update, [](const Options& options, std::int64_t) { return options.at("lr"); });
  return lr.live(update.parameters.front().is_cpu() ? at::kDouble : at::kFloat);
}

/// @param fused  at::_fused_adam_ or at::_fused_adamw_, which differ in what weight decay does
template <class Fused>
void update_adam_by(const Fused& fused, const TensorUpdate& update) {
  const Options& options = *update.options;
  const bool is_amsgrad = options.at("amsgrad") != 0;
  const at::TensorOptions of_step = update.parameters.front().options().dtype(at::kFloat);
  const Number count(update, [](const Options&, std::int64_t step) { return static_cast<double>(step); });
  const std::vector<at::Tensor> steps(update.parameters.size(),
                                      count.is_live() ? count.live(at::kFloat) : at::full({}, count.plain(), of_step));
  const std::vector<at::Tensor> none;
  const auto run = [&](const auto& lr) {
    fused(update.parameters, update.gradients, update.states[0], update.states[1], is_amsgrad ? update.states[2] : none,
          steps, lr, options.at("beta1"), options.at("beta2"), options.at("weight_decay"), options.at("eps"),
          is_amsgrad, options.at("maximize") != 0, std::optional<at::Tensor>(), optional(update.is_void));
  };
  update.live != nullptr ? run(live_lr(update)) : run(options.at("lr"));
}

}  // namespace

void update_sgd_tensors(const TensorUpdate& update) {
  const Options& options = *update.options;
  const double momentum = options.at("momentum");
  const std::vector<at::Tensor> none;
  if (update.live != nullptr) {
    update.live->fixed([](const Options&, std::int64_t step) { return step == 1 ? 1 : 0; });
  }
  const auto run = [&](const auto& lr) {
    at::_fused_sgd_(update.parameters, update.gradients, momentum != 0 ? update.states[0] : none,
                    options.at("weight_decay"), momentum, lr, options.at("dampening"), options.at("nesterov") != 0,
                    options.at("maximize") != 0, /*is_first_step=*/update.step == 1, {}, optional(update.is_void));
  };
  update.live != nullptr ? run(live_lr(update)) : run(options.at("lr"));
}

void update_adam_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adam_(arguments...); }, update);
}

void update_adamw_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adamw_(arguments...); }, update);
}

}  // namespace lockstep::optim
