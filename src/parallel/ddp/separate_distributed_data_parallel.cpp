// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/separate_distributed_data_parallel.hpp>

#include <torch/types.h>

#include <algorithm>
#include <set>
#include <utility>

#include "batch/collate.hpp"
#include "core/text.hpp"
#include "parallel/ddp/prepared_batch.hpp"
#include "parallel/sync/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// A child as a model of its own, whose parameters keep their full names.
class ChildModel : public models::Model {
 public:
  ChildModel(const std::string& name, std::shared_ptr<models::Block> child) {
    child_ = register_module(name, std::move(child));
  }
  models::Tensors forward_tensors(const models::Tensors& inputs) override { return models::run(*child_, inputs); }

 private:
  std::shared_ptr<models::Block> child_;
};

bool is_trained(const torch::nn::Module& module) {
  const auto parameters = module.parameters();
  return std::any_of(parameters.begin(), parameters.end(), [](const at::Tensor& each) { return each.requires_grad(); });
}

}  // namespace

SeparateDistributedDataParallel::SeparateDistributedDataParallel(std::shared_ptr<models::Model> model,
                                                                 const mpi::Communicator& world,
                                                                 mpi::Collectives& collectives,
                                                                 const DdpOptions& options)
    : model_(std::move(model)), world_(world.handle()) {
  verify_same_model(*model_, world);
  world.all_or_throw([this] { require_separable(); });
  for (const auto& item : model_->named_children()) {
    if (!is_trained(*item.value())) continue;
    const auto block = std::dynamic_pointer_cast<models::Block>(item.value());
    Child child{.block = block.get(), .collectives = collectives.split(0), .wrapper = nullptr};
    child.wrapper = std::make_unique<DistributedDataParallel>(std::make_shared<ChildModel>(item.key(), block), world,
                                                              *child.collectives, options);
    children_.emplace(item.key(), std::move(child));
  }
  broadcast_rest(world, options);
}

SeparateDistributedDataParallel::~SeparateDistributedDataParallel() = default;

void SeparateDistributedDataParallel::require_separable() const {
  for (const auto& item : model_->named_parameters(/*recurse=*/false)) {
    if (!item.value().requires_grad()) continue;
    throw ConfigError("ddp: parameter '" + item.key() + "' does not belong to a child of the model; move it into one");
  }
  std::map<const void*, std::string> owners;
  for (const auto& child : model_->named_children()) {
    if (!is_trained(*child.value())) continue;
    if (dynamic_cast<const models::Block*>(child.value().get()) == nullptr) {
      throw ConfigError("ddp: child '" + child.key() + "' has trained parameters, but is not a models::Block");
    }
    for (const at::Tensor& parameter : child.value()->parameters()) {
      const auto [owner, is_new] = owners.emplace(parameter.unsafeGetTensorImpl(), child.key());
      if (is_new || owner->second == child.key() || !parameter.requires_grad()) continue;
      throw ConfigError("ddp: children '" + owner->second + "' and '" + child.key() +
                        "' share a parameter, so they cannot be trained separately");
    }
  }
  if (!is_trained(*model_)) {
    throw ConfigError("ddp: no parameter of the model requires a gradient: there is nothing to train");
  }
}

/// What belongs to no wrapped child.
void SeparateDistributedDataParallel::broadcast_rest(const mpi::Communicator& world, const DdpOptions& options) const {
  const auto assign = [&](const auto& items) {
    for (const auto& item : items) {
      const bool is_ignored =
          std::find(options.ignored.begin(), options.ignored.end(), item.key()) != options.ignored.end();
      const bool is_wrapped = children_.contains(item.key().substr(0, item.key().find('.')));
      if (!is_ignored && !is_wrapped) broadcast(item.value(), world, options.root);
    }
  };
  assign(model_->named_parameters());
  assign(model_->named_buffers());
}

models::Tap SeparateDistributedDataParallel::tap_of_children(const optim::OptimWrapperDict* optimizers) {
  return [this, optimizers](models::Block& block, const models::Tensors& inputs, const auto& next) {
    for (auto& [name, child] : children_) {
      if (child.block != &block) continue;
      if (!is_trained(block)) break;  // it rests
      const bool is_updated = optimizers != nullptr && optimizers->contains(name);
      const bool completes_step = !is_updated || optimizers->at(name).completes_step();
      const DistributedDataParallel::OptimContext context(*child.wrapper, completes_step);
      return child.wrapper->run([&] { return next(inputs); });
    }
    return next(inputs);
  };
}

models::LossMap SeparateDistributedDataParallel::train_step(const batch::Batch& batch,
                                                            optim::OptimWrapperDict& optimizers, const Step& step) {
  for (const auto& [name, optimizer] : optimizers) child(name);
  const models::ScopedTap tap(tap_of_children(&optimizers));
  return step(batch, optimizers);
}

batch::Batch SeparateDistributedDataParallel::prepare(const batch::Batch& batch, bool is_training) const {
  const torch::NoGradGuard no_grad;
  const at::Tensor parameter = model_->parameters().front();
  return prepared_batch(*model_, batch::scatter(batch.share(), parameter.device()), is_training, parameter.device(),
                        parameter.scalar_type());
}

batch::Outputs SeparateDistributedDataParallel::forward(const batch::Batch& prepared) {
  const models::ScopedTap tap(tap_of_children(nullptr));
  return models::run(*model_, prepared);
}

ValidationResult SeparateDistributedDataParallel::val_step(const batch::Batch& batch) {
  const torch::NoGradGuard no_grad;
  ValidationResult result{.batch = prepare(batch, /*is_training=*/false), .outputs = {}, .losses = {}};
  result.outputs = forward(result.batch);
  result.losses = models::parse_losses(models::losses_of(*model_, result.outputs, result.batch));
  return result;
}

models::Predictions SeparateDistributedDataParallel::test_step(const batch::Batch& batch) {
  const torch::NoGradGuard no_grad;
  const batch::Batch prepared = prepare(batch, /*is_training=*/false);
  return model_->predictions_of(forward(prepared), prepared);
}

SeparateDistributedDataParallel::NoSync::NoSync(SeparateDistributedDataParallel& wrapper) {
  for (auto& [name, child] : wrapper.children_) all_.emplace_back(*child.wrapper);
}

std::vector<std::string> SeparateDistributedDataParallel::names() const {
  std::vector<std::string> names;
  for (const auto& [name, child] : children_) names.push_back(name);
  return names;
}

DistributedDataParallel& SeparateDistributedDataParallel::child(const std::string& name) {
  const auto found = children_.find(name);
  if (found != children_.end()) return *found->second.wrapper;
  throw ConfigError("ddp: there is no trained child '" + name + "'; the trained ones are: " + joined(names()));
}

}  // namespace lockstep::parallel
