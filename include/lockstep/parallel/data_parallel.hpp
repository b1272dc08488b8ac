// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// The communicator of a single process and its collectives; empty if the caller provides them.
struct Alone {
  std::unique_ptr<mpi::Communicator> own_world = {};
  std::unique_ptr<mpi::Collectives> own_collectives = {};
};

/// The wrapper for a single process: no communication, and gradients are used in place. Its steps are those of
/// DistributedDataParallel. Before every forward, it also checks that the model is on the expected device.
class DataParallel : private Alone, public DistributedDataParallel {
 public:
  /// @param devices  the first is the device of the model; empty = the device of its first parameter. With several
  ///                 devices, train_step and val_step throw
  /// @throws ConfigError  as DistributedDataParallel
  explicit DataParallel(std::shared_ptr<models::Model> model, std::vector<at::Device> devices = {},
                        const DdpOptions& options = {});
  /// @param world        one rank
  /// @param collectives  of the same rank; outlives the wrapper
  /// @throws ConfigError  on every rank, if there are several ranks
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
  std::vector<std::pair<std::string, at::Tensor>> tensors_;  // tensors of the model with their names in messages
};

}  // namespace lockstep::parallel
