// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>

namespace lockstep::parallel {

namespace {

/// The trained parameters in registration order, each once even if it is registered under several names.
std::vector<NamedParameter> trained_parameters(const models::Model& model) {
  std::vector<NamedParameter> trained;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& tensor = item.value();
    const bool is_known = std::any_of(trained.begin(), trained.end(),
                                      [&tensor](const NamedParameter& p) { return p.tensor.is_same(tensor); });
    if (tensor.requires_grad() && !is_known) trained.push_back({item.key(), tensor});
  }
  if (trained.empty())
    throw ConfigError("ddp: no parameter of the model requires a gradient: there is nothing to train");
  return trained;
}

std::vector<ParameterSpec> specs_of(const std::vector<NamedParameter>& parameters) {
  std::vector<ParameterSpec> specs;
  for (const auto& [name, tensor] : parameters) {
    const DType dtype = dtype_of(tensor, name);
    if (dtype != DType::float32 && dtype != DType::float64) {
      throw ConfigError("ddp: parameter '" + name + "' is " + std::string(name_of(dtype)) +
                        "; parameters must be float32 or float64");
    }
    if (!is_flat(tensor)) throw ConfigError("ddp: parameter '" + name + "' does not own its memory densely");
    specs.push_back({name, dtype, tensor.sizes().vec(), tensor.strides().vec()});
  }
  return specs;
}

}  // namespace

DdpOptions DdpOptions::from(const Section& ddp, const mpi::Collectives& collectives) {
  DdpOptions options;
  options.limits.bucket_bytes = ddp.integer("bucket_bytes");
  options.limits.last_bucket_bytes = ddp.integer("last_bucket_bytes");
  const std::string& shares = ddp.text("shared_parameters");
  options.shares_parameters = shares == "true" || (shares == "auto" && collectives.name() == "shm");
  return options;
}

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                                                 mpi::Collectives& collectives, const DdpOptions& options)
    : model_(std::move(model)) {
  verify_same_model(*model_, world);
  std::vector<NamedParameter> parameters;
  std::vector<Bucket> buckets;
  world.together([&] {
    parameters = trained_parameters(*model_);
    buckets = plan_buckets(specs_of(parameters), options.limits);
  });
  for (const auto& item : model_->named_parameters()) {
    if (!item.value().requires_grad()) broadcast(item.value(), world);
  }
  for (const auto& item : model_->named_buffers()) broadcast(item.value(), world);
  dtype_ = parameters.front().tensor.scalar_type();
  store_ = std::make_unique<ParameterStore>(parameters, buckets, world, options.shares_parameters);
  reducer_ = std::make_unique<GradientReducer>(std::move(parameters), std::move(buckets), collectives, world);
  store_->on_finish_gradients([reducer = reducer_.get()] { reducer->finish(); });
}

at::Tensor DistributedDataParallel::forward(const at::Tensor& input) {
  if (at::GradMode::is_enabled()) reducer_->prepare(synchronises_);
  const bool needs_cast = input.is_floating_point() && input.scalar_type() != dtype_;
  return models::run(*model_, needs_cast ? input.to(dtype_) : input);
}

StepResult DistributedDataParallel::train_step(const data::Batch& batch, optim::OptimWrapper& optimizer,
                                               double weight) {
  std::optional<NoSync> only_accumulates;
  if (!optimizer.completes_step()) only_accumulates.emplace(*this);
  const models::LossMap losses = model_->losses(forward(batch.input), batch.target);
  const at::Tensor loss = models::total_loss(losses);
  StepResult result;
  result.loss = loss.item<double>();
  result.update = optimizer.update_params(loss, weight);
  return result;
}

metrics::ClassificationSums DistributedDataParallel::val_step(const data::Batch& batch) {
  const torch::NoGradGuard no_grad;
  const at::Tensor output = forward(batch.input);
  return metrics::classification_sums(output, batch.target, models::total_loss(model_->losses(output, batch.target)));
}

}  // namespace lockstep::parallel
