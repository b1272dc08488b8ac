// SPDX-License-Identifier: BSD-3-Clause
// Updates by LibTorch's fused kernels.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <optional>

#include "optim/rules.hpp"

namespace lockstep::optim {

namespace {

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

/// @param fused  at::_fused_adam_ or at::_fused_adamw_, which differ in what weight decay does
template <class Fused>
void update_adam_by(const Fused& fused, const TensorUpdate& update) {
  const Options& options = *update.options;
  const bool is_amsgrad = options.at("amsgrad") != 0;
  const at::TensorOptions of_step = update.parameters.front().options().dtype(at::kFloat);
  const std::vector<at::Tensor> steps(update.parameters.size(),
                                      at::full({}, static_cast<double>(update.step), of_step));
  const std::vector<at::Tensor> none;
  fused(update.parameters, update.gradients, update.states[0], update.states[1], is_amsgrad ? update.states[2] : none,
        steps, options.at("lr"), options.at("beta1"), options.at("beta2"), options.at("weight_decay"),
        options.at("eps"), is_amsgrad, options.at("maximize") != 0, std::optional<at::Tensor>(),
        optional(update.is_void));
}

}  // namespace

void update_sgd_tensors(const TensorUpdate& update) {
  const Options& options = *update.options;
  const double momentum = options.at("momentum");
  const std::vector<at::Tensor> none;
  at::_fused_sgd_(update.parameters, update.gradients, momentum != 0 ? update.states[0] : none,
                  options.at("weight_decay"), momentum, options.at("lr"), options.at("dampening"),
                  options.at("nesterov") != 0, options.at("maximize") != 0, /*is_first_step=*/update.step == 1, {},
                  optional(update.is_void));
}

void update_adam_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adam_(arguments...); }, update);
}

void update_adamw_tensors(const TensorUpdate& update) {
  update_adam_by([](auto&&... arguments) { at::_fused_adamw_(arguments...); }, update);
}

}  // namespace lockstep::optim
