// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/stateful.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/loop/run.hpp"

// The built-in components of a run's checkpoints, which the files of this folder define. run_state.cpp lists them in
// order, and then those of hooks.
namespace lockstep::parallel {
class PartParameters;
}

namespace lockstep::engine {

/// Parameters, trained or not, and buffers: group /model.
std::shared_ptr<Stateful> model_state(parallel::DistributedDataParallel& wrapper);

/// An optimizer, the parameters that it updates, and where it is in an archive.
struct OptimizerContext {
  std::string group;  ///< such as "/optim/0"
  optim::Optimizer* optimizer;
  parallel::ParameterStore* store;
  std::string name = "";  ///< tells apart several optimizers; empty if there is one
  /// The parameters that it updates; null = all of the store.
  const parallel::PartParameters* part = nullptr;

  /// The number in the store of a block of the optimizer.
  std::size_t in_store(std::size_t block) const;
  const optim::Segment& segment(std::size_t block, std::size_t segment) const;
  std::size_t parameter(std::size_t block, std::size_t segment) const;  ///< its number in the store
};
/// Type, options of parameter groups, update counts and state arrays: group /optim/<name>.
std::shared_ptr<Stateful> optimizer_state(OptimizerContext place);

/// Compares the names of the optimizers in the archive with those of the run. Nothing is captured or restored.
std::shared_ptr<Stateful> parts_state(Run& run);

/// Loss scaling of fp16, if the optimizer has it.
/// @param group  such as "/scaler"
std::shared_ptr<Stateful> scaler_state(std::string group, optim::OptimWrapper& optimizer,
                                       const mpi::Communicator& world);

/// The average of past weights, if the run keeps one: group /ema. After the model, in whose groups of the archive
/// it looks up what it shares with the trained weights.
std::shared_ptr<Stateful> ema_state(Run& run);

/// LibTorch's default generator on the CPU, of every rank: group /rng. Lockstep's own random numbers never depend on
/// it; a user's code may.
std::shared_ptr<Stateful> random_state(const mpi::Communicator& world);

/// The state of the communication hook: group /comm/hook. The parts of each rank are lost if the number of ranks
/// changes.
std::shared_ptr<Stateful> comm_hook_state(Run& run);

/// The gradient buckets: group /comm/buckets.
std::shared_ptr<Stateful> buckets_state(Run& run);

/// Ranks, threads, lanes, sharding and precision: they decide how results are rounded, and are not restored.
std::shared_ptr<Stateful> arithmetic_state(Run& run);

/// Steps, epochs, samples, and where sampler and schedule are: groups /sampler and /sched.
std::shared_ptr<Stateful> progress_state(Run& run);

/// Transforms and statistics of the images: group /data. Compared, and not restored: the data were opened with the
/// statistics.
std::shared_ptr<Stateful> data_state(Run& run);

/// The origin of the run: group /meta, stored for information and for the lineage, and not restored. The data of the
/// user: group /extra.
std::shared_ptr<Stateful> origin_state(Run& run, std::string config_ini);
/// The effect of other values of the model, the loss, the optimizer and the schedule than those in a checkpoint.
/// @param config_ini  the configuration of this run; empty = it is not compared
Reproducibility by_settings(const std::string& config_ini, const checkpoints::Archive& archive);

/// A row of numbers, which the array owns.
template <class T>
checkpoints::Array array_of(std::vector<T> values, DType dtype) {
  const auto kept = std::make_shared<std::vector<T>>(std::move(values));
  return {.dtype = dtype,
          .shape = {static_cast<std::int64_t>(kept->size())},
          .bytes = std::as_bytes(std::span(*kept)),
          .owner = kept};
}

/// The reproducibility of a component that is not restored completely.
inline Reproducibility incomplete_state() {
  return {Reproducibility::Degree::statistical, "not all of the state was taken over"};
}

}  // namespace lockstep::engine
