// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// The communicator of one process alone and its collectives; empty where they come from elsewhere.
struct Alone {
  std::unique_ptr<mpi::Communicator> own_world = {};
  std::unique_ptr<mpi::Collectives> own_collectives = {};
};

/// The wrapper of one process without other ranks: nothing communicates, and gradients stay where they are. Its steps
/// are those of DistributedDataParallel. It also checks before every forward that the model is where it should be.
class DataParallel : private Alone, public DistributedDataParallel {
 public:
  /// @param devices  the first is the model's; empty = the one where its first parameter is. Several are accepted here,
  ///                 and refused by train_step and val_step
  /// @throws ConfigError  as DistributedDataParallel
  explicit DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices = {},
                        const DdpOptions& options = {});
  /// @param world        one rank
  /// @param collectives  of the same rank; outlives the wrapper
  /// @throws ConfigError  there are several ranks; on every rank
  DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices, const mpi::Communicator& world,
               mpi::Collectives& collectives, const DdpOptions& options);

 protected:
  /// @throws ConfigError  a parameter or buffer is on another device, naming it and both devices; or, with losses,
  /// there
  ///                      are several devices
  void require_usable(bool has_losses) const override;

 private:
  DataParallel(Alone alone, std::shared_ptr<models::Model> model, std::vector<at::Device> devices,
               const DdpOptions& options);
  void find_tensors();
  void require_one_device() const;

  std::vector<at::Device> devices_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;  // of the model, as messages call them
};

}  // namespace lockstep::parallel
