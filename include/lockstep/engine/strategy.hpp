// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/engine/session.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/mpi/topology.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace lockstep::engine {

/// Brings up everything that a step needs: threads, collectives, model, wrapper, optimizer. One process per rank; with
/// one rank the same objects run without hooks and collectives.
class Strategy {
 public:
  /// @param sections  the run's configuration: run, comm, train, model, optim, ddp are read
  /// @param task      what the data set asks for
  /// @param world     all ranks; outlives the strategy
  /// @param tables    what models and optimizers are chosen from; outlives the strategy
  /// Collective.
  /// @throws ConfigError  from any part, on every rank
  Strategy(const Sections& sections, const Task& task, const mpi::Communicator& world,
           const Tables& tables = builtin_tables());

  const mpi::Communicator& world() const noexcept { return *world_; }
  mpi::Collectives& collectives() noexcept { return *collectives_; }
  parallel::DistributedDataParallel& model() noexcept { return *model_; }
  optim::OptimWrapper& optimizer() noexcept { return *optimizer_; }

  std::uint64_t seed() const noexcept { return seed_; }
  /// Forwards of this rank in a step; with lanes, its lanes.
  std::int64_t micro_batches() const noexcept { return micro_batches_; }
  std::int64_t lanes() const noexcept { return lanes_; }                ///< of a step, on all ranks; 0: off
  std::int64_t first_lane() const noexcept { return first_lane_; }      ///< of this rank
  int threads() const noexcept { return threads_; }                     ///< for computing, on this rank
  const std::string& comm_hook() const noexcept { return comm_hook_; }  ///< its name in the table
  const std::string& precision() const noexcept { return precision_; }  ///< train.precision
  at::Device device() const noexcept { return device_; }                ///< where this rank computes

 private:
  const mpi::Communicator* world_;
  std::uint64_t seed_;
  std::int64_t micro_batches_;
  std::int64_t lanes_ = 0;
  std::int64_t first_lane_ = 0;
  int threads_ = 1;
  std::string comm_hook_;
  std::string precision_;
  at::Device device_ = at::kCPU;
  std::unique_ptr<mpi::Collectives> collectives_;
  std::unique_ptr<parallel::DistributedDataParallel> model_;
  std::unique_ptr<optim::OptimWrapper> optimizer_;
};

}  // namespace lockstep::engine
