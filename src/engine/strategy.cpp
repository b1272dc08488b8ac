// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/table.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/Parallel.h>

#include <cstdlib>

namespace lockstep::engine {

namespace {

/// Compute threads of this rank: run.threads, else OMP_NUM_THREADS, else this rank's part of the processors.
int set_threads(const Section& run, const mpi::Topology& topology) {
  int threads = static_cast<int>(run.integer("threads"));
  const char* const omp = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && omp != nullptr) threads = std::atoi(omp);
  if (threads <= 0) threads = std::max(1, topology.cpus / topology.local_size);
  at::set_num_threads(threads);
  return threads;
}

std::int64_t count_micro_batches(const Section& train, const mpi::Communicator& world) {
  const std::int64_t global_batch = train.integer("global_batch_size");
  if (global_batch < world.size()) {
    throw ConfigError(train.cite("global_batch_size") + ": " + std::to_string(global_batch) + " samples do not give " +
                      std::to_string(world.size()) + " ranks one each");
  }
  const std::int64_t share = data::share_of(global_batch, world.rank(), world.size()).count;
  const std::int64_t most = train.integer("micro_batch");
  return most == 0 ? 1 : (share + most - 1) / most;
}

std::vector<optim::ParameterInfo> describe_parameters(const parallel::ParameterStore& store) {
  std::vector<optim::ParameterInfo> parameters(store.size());
  for (std::size_t i = 0; i < store.size(); ++i) {
    parameters[i] = {store.parameter(i).name, store.parameter(i).tensor.dim()};
  }
  return parameters;
}

}  // namespace

Strategy::Strategy(const Sections& sections, const Task& task, const mpi::Communicator& world, const Tables& tables)
    : world_(&world), seed_(static_cast<std::uint64_t>(sections.at("run").integer("seed"))) {
  const Section& train = sections.at("train");
  const mpi::Topology topology = mpi::Topology::of(world);
  const int threads = set_threads(sections.at("run"), topology);
  const auto loaders = static_cast<int>(sections.at("data").integer("workers"));
  // Loader threads mostly sleep: only compute threads are held against the processors.
  const std::string crowded = topology.oversubscription(threads);
  if (!crowded.empty() && topology.local_rank == 0) log::warning(crowded);
  log::debug("threads: " + std::to_string(threads) + " for computing, " + std::to_string(loaders) + " for loading");

  world.together([&] { micro_batches_ = count_micro_batches(train, world); });
  collectives_ = mpi::make_collectives(
      world, {.backend = sections.at("comm").text("backend"), .timeout_s = sections.at("comm").real("timeout_s")});

  std::shared_ptr<models::Model> built;
  world.together([&] {
    const at::ScalarType dtype = train.text("precision") == "fp64" ? at::kDouble : at::kFloat;
    built = models::build(sections.at("model"), task, seed_, dtype, tables.models);
  });
  model_ = std::make_unique<parallel::DistributedDataParallel>(
      std::move(built), world, *collectives_, parallel::DdpOptions::from(sections.at("ddp"), *collectives_));

  parallel::ParameterStore& store = model_->parameters();
  const optim::Rule* rule = nullptr;
  std::vector<optim::ParamGroup> groups;
  optim::OptimWrapper::WrapperOptions wrapper{.accumulation_steps = micro_batches_};
  world.together([&] {
    const Section& optim = sections.at("optim");
    rule = &find_row(tables.rules, optim.text("name"), optim.cite("name"));
    groups = optim::build_groups(optim, *rule, describe_parameters(store));
    wrapper.clip = optim::Clip::parse(train.text("clip_grad"), train.cite("clip_grad"));
  });
  optimizer_ = std::make_unique<optim::OptimWrapper>(optim::Optimizer(*rule, std::move(groups), store), store, wrapper);
}

}  // namespace lockstep::engine
