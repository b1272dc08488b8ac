// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/engine/run_data.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/optim/optim_wrapper_dict.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/settings/builtin_registry.hpp"
#include "engine/setup/param_dtype.hpp"
#include "engine/setup/parts.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/strategy_table.hpp"
#include "optim/averages/model_average.hpp"

namespace lockstep::mpi {
class Gpu;
}
namespace lockstep::parallel {
class PostLocalSgd;
}

namespace lockstep::engine {

class PostLocal;

/// The parts that a program provides; the configuration selects the others.
struct Overrides {
  std::shared_ptr<models::Model> model = nullptr;  ///< instead of model.name, with initial values
  const optim::Rule* rule = nullptr;               ///< instead of optim.name; outlives the strategy
  std::vector<optim::ParamGroup> groups = {};      ///< used with `rule`: groups of all trained parameters
};

/// Brings up everything that a step needs, and says how it is laid out over the ranks. One process per rank.
///
/// Constructed, the process is set up: threads, open files, determinism, device, collectives. `prepare` builds the
/// model, gives all ranks its values, wraps it, and builds the optimizer for what the wrapper holds.
class Strategy {
 public:
  /// @param sections  the run's configuration: run, comm, train, data, model, optim, ema, ddp and strategy are read
  /// @param world     all ranks; outlives the strategy
  /// @param row       how training is laid out; outlives the strategy
  /// @param registry    what models and optimizers are chosen from; outlives the strategy
  /// @param stand_in    for tests: a GPU that computes on the CPU, in the memory of the host; null = run.device decides
  /// Collective.
  /// @throws ConfigError  from any part, on every rank
  Strategy(const Sections& sections, const mpi::Communicator& world, const StrategyRow& row,
           const Registry& registry = builtin_registry(), std::shared_ptr<const mpi::Gpu> stand_in = nullptr);
  Strategy(const Strategy&) = delete;
  Strategy& operator=(const Strategy&) = delete;
  ~Strategy();

  const std::string& name() const noexcept { return row_->name; }

  /// Once; later calls change nothing. Collective.
  /// @param task  what the data set requests
  /// @throws ConfigError  from any part, on every rank
  /// @return  this
  Strategy& prepare(const Task& task, Overrides overrides = {});
  bool is_prepared() const noexcept { return parts_.size() > 0; }

  const mpi::Communicator& world() const noexcept { return *world_; }
  mpi::Collectives& collectives() noexcept { return *collectives_; }
  /// Available after prepare, as all that follows.
  parallel::DistributedDataParallel& model() noexcept { return *model_; }
  /// The optimizers by the names of their parts; without parts, one that is named "".
  optim::OptimWrapperDict& parts() noexcept { return parts_; }
  bool has_parts() const noexcept { return has_parts_; }
  /// The first one.
  optim::OptimWrapper& optimizer() noexcept { return parts_.begin()->second; }
  /// The only one, or all together.
  optim::BaseOptimWrapper& step_optimizer() noexcept;
  /// The average of the weights (section `ema`); null = none.
  optim::ModelAverage* average() noexcept { return average_.get(); }
  /// The averages of post-local SGD (strategy.post_local); null = none.
  parallel::PostLocalSgd* post_local() noexcept;

  /// Number of elements of all parameters of the model, before any division among ranks.
  std::int64_t parameter_count() const noexcept { return parameter_count_; }
  const BatchLayout& layout() const noexcept { return layout_; }
  std::int64_t lanes() const noexcept { return layout_.lanes; }  ///< lanes per step over all ranks; 0 = off
  const DrawSeeds& draws() const noexcept { return draws_; }
  std::uint64_t seed() const noexcept { return draws_.seed; }
  int threads() const noexcept { return threads_; }                                ///< computing threads on this rank
  int loader_threads() const noexcept { return loader_threads_; }                  ///< loader threads on this rank
  int processors() const noexcept { return processors_; }                          ///< that this rank can use
  const std::string& comm_hook() const noexcept { return comm_hook_; }             ///< name in the table of hooks
  const std::string& precision() const noexcept { return precision_.name.value; }  ///< train.precision
  /// The products of float32 numbers that are computed in TF32: convolutions, all or none.
  const std::string& tf32() const noexcept { return tf32_; }
  const ParamDtypeSettings& param_dtype() const noexcept { return param_dtype_; }
  /// Type of matrix products in forward passes.
  at::ScalarType products() const { return precision_.autocast.value_or(precision_.parameters); }
  const at::Device& device() const noexcept { return device_; }                 ///< device of this rank
  const std::shared_ptr<const mpi::Gpu>& gpu() const noexcept { return gpu_; }  ///< GPU of this rank; null = none
  bool compiles() const noexcept { return compiles_; }                          ///< run.compile

 private:
  std::shared_ptr<models::Model> build_model(const Task& task, std::shared_ptr<models::Model> given) const;
  void wrap(std::shared_ptr<models::Model> model, const PartPlans& plans);
  void build_optimizers(PartPlans plans);
  void build_average();

  Sections sections_;
  const mpi::Communicator* world_;
  const StrategyRow* row_;
  const Registry* registry_;
  StrategySettings settings_;
  std::string comm_hook_;
  int loader_threads_ = 1;
  int processors_ = 1;
  int threads_ = 1;
  std::int64_t parameter_count_ = 0;
  at::Device device_ = at::kCPU;
  std::shared_ptr<const mpi::Gpu> gpu_;
  bool is_stand_in_;
  bool compiles_ = false;
  DrawSeeds draws_;
  Precision precision_;
  std::string tf32_ = "none";
  ParamDtypeSettings param_dtype_;
  BatchLayout layout_;
  std::unique_ptr<mpi::Collectives> collectives_;
  std::unique_ptr<PostLocal> post_local_;
  std::unique_ptr<parallel::DistributedDataParallel> model_;
  optim::OptimWrapperDict parts_;
  bool has_parts_ = false;
  std::unique_ptr<optim::ModelAverage> average_;
};

/// The one that strategy.name says; auto: single for one rank, else ddp. Collective.
std::unique_ptr<Strategy> make_strategy(const Sections& sections, const mpi::Communicator& world,
                                        const Registry& registry = builtin_registry());

}  // namespace lockstep::engine
