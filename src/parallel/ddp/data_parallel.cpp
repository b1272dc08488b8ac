// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include "core/text/text.hpp"

namespace lockstep::parallel {

namespace {

bool is_same(const at::Device& a, const at::Device& b) {
  return a.type() == b.type() && (!a.has_index() || !b.has_index() || a.index() == b.index());
}

Alone make_alone() {
  Alone alone{.own_world = std::make_unique<mpi::Communicator>(mpi::Communicator::alone())};
  alone.own_collectives = mpi::make_collectives(*alone.own_world, {.backend = "self"});
  return alone;
}

const mpi::Communicator& require_one_rank(const mpi::Communicator& world) {
  if (world.size() == 1) return world;
  throw_agreed(ExitCode::configuration,
               "DataParallel requires one rank, not " + std::to_string(world.size()) + "; use DistributedDataParallel");
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices,
                           const DdpOptions& options)
    : DataParallel(make_alone(), std::move(model), std::move(devices), options) {}

DataParallel::DataParallel(Alone alone, std::shared_ptr<models::Model> model, std::vector<at::Device> devices,
                           const DdpOptions& options)
    : Alone(std::move(alone)),
      DistributedDataParallel(std::move(model), *own_world, *own_collectives, options),
      devices_(std::move(devices)) {
  find_tensors();
}

DataParallel::DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices,
                           const mpi::Communicator& world, mpi::Collectives& collectives, const DdpOptions& options)
    : DistributedDataParallel(std::move(model), require_one_rank(world), collectives, options),
      devices_(std::move(devices)) {
  find_tensors();
}

void DataParallel::find_tensors() {
  for (const auto& item : this->model().named_parameters()) {
    tensors_.emplace_back("parameter '" + item.key() + "'", item.value());
  }
  for (const auto& item : this->model().named_buffers()) {
    tensors_.emplace_back("buffer '" + item.key() + "'", item.value());
  }
  if (devices_.empty()) devices_.push_back(tensors_.front().second.device());
}

void DataParallel::require_usable(bool has_losses) const {
  if (has_losses) return require_one_device();  // the rest is looked at when the batch is prepared
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor.defined() || is_same(tensor.device(), devices_.front())) continue;
    throw ConfigError("DataParallel: " + name + " is on " + tensor.device().str() + ", but the model is expected on " +
                      devices_.front().str() + "; move the model there");
  }
}

void DataParallel::require_one_device() const {
  if (devices_.size() == 1) return;
  std::vector<std::string> names;
  for (const at::Device& device : devices_) names.push_back(device.str());
  throw ConfigError("DataParallel trains on one device, not on " + std::to_string(devices_.size()) + " (" +
                    joined(names) + "); use DistributedDataParallel with one rank per device");
}

}  // namespace lockstep::parallel
