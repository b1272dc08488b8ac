// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include <cmath>

namespace lockstep::optim {

OptimWrapper::OptimWrapper(Optimizer optimizer, FlatParameters& parameters, WrapperOptions options)
    : optimizer_(std::move(optimizer)), parameters_(&parameters), options_(options) {
  if (options_.accumulation_steps >= 1) return;
  throw ConfigError("accumulation_steps must be at least 1, not " + std::to_string(options_.accumulation_steps));
}

UpdateReport OptimWrapper::update_params(const Tensor& loss, std::optional<double> weight) {
  const double share = weight.value_or(1.0 / static_cast<double>(options_.accumulation_steps));
  const Tensor weighted = share == 1 ? loss : loss.mul(share);
  weighted.backward();
  const bool completes = completes_step();
  ++micro_batch_;
  if (!completes) return {};
  micro_batch_ = 0;
  const UpdateReport report = clip_and_step();
  parameters_->drop_gradients();
  return report;
}

/// The host learns the norm last, when all work is queued.
UpdateReport OptimWrapper::clip_and_step_tensors() {
  parameters_->finish_gradients();
  UpdateReport report;
  at::Tensor norm;
  if (options_.clip.max_norm > 0) norm = gradient_norm_tensor(*parameters_, options_.clip.norm_type);
  optimizer_.step_tensors(change_by(options_.clip, norm));
  if (norm.defined()) {
    report.grad_norm = norm.item<double>();
    report.is_finite = std::isfinite(*report.grad_norm);
    if (!report.is_finite) optimizer_.uncount_step();
  }
  report.updated = report.is_finite;
  return report;
}

UpdateReport OptimWrapper::clip_and_step() {
  if (parameters_->as_tensors() != nullptr) return clip_and_step_tensors();
  UpdateReport report;
  if (options_.clip.max_norm > 0) {
    parameters_->finish_gradients();
    report.grad_norm = gradient_norm(*parameters_, options_.clip.norm_type);
    report.is_finite = std::isfinite(*report.grad_norm);
    if (!report.is_finite) return report;
  }
  optimizer_.step(change_by(options_.clip, report.grad_norm.value_or(0)));
  report.updated = true;
  return report;
}

}  // namespace lockstep::optim
