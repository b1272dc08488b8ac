// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include <torch/types.h>

#include "data/collate.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::parallel {

namespace {

bool is_same(const at::Device& a, const at::Device& b) {
  return a.type() == b.type() && (!a.has_index() || !b.has_index() || a.index() == b.index());
}

void require_on(const at::Device& expected, const at::Tensor& tensor, const std::string& what) {
  if (!tensor.defined() || is_same(tensor.device(), expected)) return;
  throw ConfigError("DataParallel: " + what + " is on " + tensor.device().str() + ", but the model is expected on " +
                    expected.str() + "; move the model there");
}

const at::Tensor& tensor_of(const data::Value& batch, const std::string& key) {
  if (!batch.is<data::ValueMap>()) {
    throw DataError("DataParallel: a batch is a map with '" + key + "', not " + data::kind_of(batch));
  }
  const auto& map = batch.as<data::ValueMap>();
  const auto found = map.find(key);
  if (found == map.end()) throw DataError("DataParallel: the batch has no '" + key + "'");
  if (found->second.is<at::Tensor>()) return found->second.as<at::Tensor>();
  throw DataError("DataParallel: '" + key + "' of the batch is " + data::kind_of(found->second) + ", not a tensor");
}

const at::Tensor& input_of(const data::Value& batch) {
  return batch.is<at::Tensor>() ? batch.as<at::Tensor>() : tensor_of(batch, "input");
}

/// One copy from the device for all.
void read(const models::ParsedLosses& losses, BatchResult& result) {
  std::vector<at::Tensor> all;
  for (const auto& [name, value] : losses.values) all.push_back(value.to(at::kDouble));
  const at::Tensor numbers = at::stack(all).cpu();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto number = numbers[static_cast<std::int64_t>(i)].item<double>();
    result.values.emplace_back(losses.values[i].first, number);
  }
  result.loss = result.values.front().second;
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices)
    : model_(std::move(model)), devices_(std::move(devices)) {
  if (devices_.empty()) devices_.emplace_back(at::kCPU);
}

DataParallel::~DataParallel() = default;

optim::FlatParameters& DataParallel::parameters() {
  if (store_) return *store_;
  std::vector<NamedParameter> trained = trained_parameters(*model_);
  require_unwrapped(trained);
  const mpi::Communicator self(MPI_COMM_SELF);
  alone_ = mpi::make_collectives(self, {.backend = "self"});
  store_ = std::make_unique<ParameterStore>(std::move(trained), self, *alone_, mpi::Communicator(MPI_COMM_SELF));
  return *store_;
}

void DataParallel::require_one_device() const {
  if (devices_.size() == 1) return;
  std::string names;
  for (const at::Device& device : devices_) names += (names.empty() ? "" : ", ") + device.str();
  throw ConfigError("DataParallel trains on one device, not on " + std::to_string(devices_.size()) + " (" + names +
                    "); use DistributedDataParallel instead, with a rank for each");
}

void DataParallel::require_placed() const {
  for (const auto& item : model_->named_parameters()) {
    require_on(devices_.front(), item.value(), "parameter '" + item.key() + "'");
  }
  for (const auto& item : model_->named_buffers()) {
    require_on(devices_.front(), item.value(), "buffer '" + item.key() + "'");
  }
}

at::Tensor DataParallel::run(const data::Value& scattered) {
  const std::vector<at::Tensor> parameters = model_->parameters();
  const auto in_its_type = [&parameters](const at::Tensor& tensor) {
    if (!tensor.is_floating_point() || parameters.empty()) return tensor;
    return tensor.to(parameters.front().scalar_type());
  };
  return models::run_all(*model_, in_its_type(input_of(scattered)), [&] {
    models::NamedTensors more;
    if (!scattered.is<data::ValueMap>()) return more;
    for (const auto& [name, value] : scattered.as<data::ValueMap>()) {
      if (name == "input" || name == "target" || !value.is<at::Tensor>()) continue;
      more.emplace(name, in_its_type(value.as<at::Tensor>()));
    }
    return more;
  }());
}

at::Tensor DataParallel::forward(const data::Value& batch) {
  require_placed();
  return run(data::scatter(batch, devices_.front(), /*non_blocking=*/true));
}

models::ParsedLosses DataParallel::losses_of(const data::Value& batch, BatchResult& result) {
  require_one_device();
  require_placed();
  const data::Value scattered = data::scatter(batch, devices_.front(), /*non_blocking=*/true);
  const at::Tensor& target = tensor_of(scattered, "target");
  const at::Tensor output = run(scattered);
  result.samples = input_of(scattered).size(0);
  return models::parse_losses(model_->losses(output, target));
}

BatchResult DataParallel::train_step(const data::Value& batch, optim::OptimWrapper& optimizer) {
  BatchResult result;
  const models::ParsedLosses losses = losses_of(batch, result);
  result.update = optimizer.update_params(losses.total);
  read(losses, result);  // last: on a GPU the host waits here
  return result;
}

BatchResult DataParallel::val_step(const data::Value& batch) {
  const torch::NoGradGuard no_grad;
  BatchResult result;
  read(losses_of(batch, result), result);
  return result;
}

models::Predictions DataParallel::test_step(const data::Value& batch) {
  const torch::NoGradGuard no_grad;
  return model_->predict(forward(batch));
}

}  // namespace lockstep::parallel
