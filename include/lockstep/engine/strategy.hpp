// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/engine/session.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/mpi/topology.hpp>
#include <lockstep/optim/model_average.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::engine {

/// What a program brings by itself; the configuration names the rest.
struct Ready {
  std::shared_ptr<models::Model> model = nullptr;  ///< instead of model.name, with initial values
  const optim::Rule* rule = nullptr;               ///< instead of optim.name; outlives the strategy
  std::vector<optim::ParamGroup> groups = {};      ///< with `rule`: of all trained parameters
};

/// Brings up everything that a step needs, and says how it is laid out over the ranks. One process per rank.
///
/// Constructed, the process is set up: threads, open files, determinism, device, collectives. `prepare` builds the
/// model, gives all ranks its values, wraps it, and builds the optimizer for what the wrapper holds.
class Strategy {
 public:
  virtual ~Strategy() = default;
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;

  virtual std::string_view name() const noexcept = 0;

  /// Once; later calls change nothing. Collective.
  /// @param task  what the data set asks for
  /// @throws ConfigError  from any part, on every rank
  /// @return  this
  Strategy& prepare(const Task& task, Ready ready = {});
  bool is_prepared() const noexcept { return optimizer_ != nullptr; }

  const mpi::Communicator& world() const noexcept { return *world_; }
  mpi::Collectives& collectives() noexcept { return *collectives_; }
  /// After prepare, as all that follows.
  parallel::DistributedDataParallel& model() noexcept { return *model_; }
  optim::OptimWrapper& optimizer() noexcept { return *optimizer_; }
  /// Of past weights, as section `ema` asks for; null: none.
  optim::ModelAverage* average() noexcept { return average_.get(); }

  std::uint64_t seed() const noexcept { return seed_; }
  /// What forwards of this rank draw with, beside seed, step and micro_batch: with run.diff_rank_seed its rank, else 0.
  std::uint64_t rank_of_draws() const noexcept { return rank_of_draws_; }
  /// Forwards of this rank in a step; with lanes, its lanes.
  std::int64_t micro_batches() const noexcept { return micro_batches_; }
  std::int64_t lanes() const noexcept { return lanes_; }                ///< of a step, on all ranks; 0: off
  std::int64_t first_lane() const noexcept { return first_lane_; }      ///< of this rank
  int threads() const noexcept { return threads_; }                     ///< for computing, on this rank
  const std::string& comm_hook() const noexcept { return comm_hook_; }  ///< its name in the table
  const std::string& precision() const noexcept { return precision_; }  ///< train.precision
  at::Device device() const noexcept { return device_; }                ///< where this rank computes

 protected:
  /// @param sections  the run's configuration: run, comm, train, model, optim, ema, ddp and strategy are read
  /// @param world     all ranks; outlives the strategy
  /// @param tables    what models and optimizers are chosen from; outlives the strategy
  /// Collective.
  /// @throws ConfigError  from any part, on every rank
  Strategy(const Sections& sections, const mpi::Communicator& world, const Tables& tables);

  const Section& section(const std::string& name) const { return sections_.at(name); }

 private:
  /// How the wrapper lays the model out, beyond what section `ddp` says.
  virtual void lay_out(parallel::DdpOptions& options) const = 0;
  std::shared_ptr<models::Model> build_model(const Task& task, std::shared_ptr<models::Model> ready) const;
  parallel::DdpOptions wrapper_options() const;

  Sections sections_;
  const mpi::Communicator* world_;
  const Tables* tables_;
  std::uint64_t seed_;
  std::uint64_t rank_of_draws_ = 0;
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
  std::unique_ptr<optim::ModelAverage> average_;
};

/// One rank, nothing to agree on: no collectives, no hooks on gradients.
class SingleDeviceStrategy : public Strategy {
 public:
  /// @throws ConfigError  there are several ranks
  SingleDeviceStrategy(const Sections& sections, const mpi::Communicator& world, const Tables& tables);
  std::string_view name() const noexcept override { return "single"; }

 private:
  void lay_out(parallel::DdpOptions&) const override {}
};

/// Every rank holds the whole model and trains it on its share of the data.
class DdpStrategy : public Strategy {
 public:
  DdpStrategy(const Sections& sections, const mpi::Communicator& world, const Tables& tables)
      : Strategy(sections, world, tables) {}
  std::string_view name() const noexcept override { return "ddp"; }

 private:
  void lay_out(parallel::DdpOptions&) const override {}
};

/// The same, but each rank holds only its part of the optimizer's state (strategy.stage=1), of the averaged gradients,
/// too (2), and of the parameters, too (3): see parallel::Sharding. Losses are those of ddp but for rounding, and so
/// are checkpoints, in both directions and on any number of ranks.
class ShardedStrategy : public Strategy {
 public:
  ShardedStrategy(const Sections& sections, const mpi::Communicator& world, const Tables& tables)
      : Strategy(sections, world, tables) {}
  std::string_view name() const noexcept override { return "sharded"; }

 protected:
  void lay_out(parallel::DdpOptions& options) const override;
};

/// The one that strategy.name says; auto: single for one rank, else ddp. Collective.
std::unique_ptr<Strategy> make_strategy(const Sections& sections, const mpi::Communicator& world,
                                        const Tables& tables = builtin_tables());

/// The keys of section `strategy`.
KeySpecs strategy_keys();

}  // namespace lockstep::engine
