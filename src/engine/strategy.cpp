// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/table.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/mpi/gpu.hpp>
#include <lockstep/mpi/lane_tree.hpp>

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "precision.hpp"

namespace lockstep::engine {

namespace {

/// Compute threads of this rank: run.threads, else OMP_NUM_THREADS, else this rank's part of the processors.
/// With lanes 1, since how many threads add up a sum shows in its bits.
int set_threads(const Section& run, const mpi::Topology& topology, bool has_lanes) {
  int threads = static_cast<int>(run.integer("threads"));
  if (threads == 0 && has_lanes) threads = 1;
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

/// "a, b" -> {"a", "b"}
std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream text(list);
  for (std::string part; std::getline(text, part, ',');) {
    const std::size_t begin = part.find_first_not_of(' ');
    if (begin != std::string::npos) parts.push_back(part.substr(begin, part.find_last_not_of(' ') + 1 - begin));
  }
  return parts;
}

/// The lanes of this rank.
std::int64_t count_lanes(const Section& train, const mpi::Communicator& world) {
  const std::int64_t lanes = train.integer("lanes");
  const std::int64_t global_batch = train.integer("global_batch_size");
  if (global_batch % lanes != 0) {
    throw ConfigError(train.cite("lanes") + ": " + std::to_string(global_batch) +
                      " samples of train.global_batch_size do not divide into " + std::to_string(lanes) +
                      " lanes of the same size");
  }
  if (lanes < world.size()) {
    throw ConfigError(train.cite("lanes") + ": " + std::to_string(lanes) + " lanes do not give " +
                      std::to_string(world.size()) + " ranks one each");
  }
  if (train.integer("micro_batch") != 0) {
    throw ConfigError(train.cite("micro_batch") + " has no place beside train.lanes: a lane is one forward; raise " +
                      "train.lanes for smaller ones");
  }
  const mpi::LaneTree tree = mpi::LaneTree::even(static_cast<int>(lanes), world.size());
  return tree.first_lane(world.rank() + 1) - tree.first_lane(world.rank());
}

bool has_batch_norm(const models::Model& model) {
  const auto modules = model.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<const models::BatchNorm*>(module.get()) != nullptr;
  });
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
    : world_(&world),
      seed_(static_cast<std::uint64_t>(sections.at("run").integer("seed"))),
      comm_hook_(sections.at("ddp").text("comm_hook")),
      precision_(sections.at("train").text("precision")) {
  const Section& train = sections.at("train");
  const mpi::Topology topology = mpi::Topology::of(world);
  // First of all: LibTorch settles once whether there is CUDA.
  const mpi::DeviceChoice chosen = mpi::choose_device(sections.at("run").text("device"), world, topology.local_rank);
  if (!chosen.remark.empty() && world.is_root()) log::warning(chosen.remark);
  if (chosen.gpu) device_ = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(chosen.gpu->index()));
  log::debug("device: " + (chosen.gpu ? device_.str() + " (" + chosen.gpu->name() + ")" : std::string("cpu")));
  lanes_ = train.integer("lanes");
  threads_ = set_threads(sections.at("run"), topology, lanes_ > 0);
  const auto loaders = static_cast<int>(sections.at("data").integer("workers"));
  // Loader threads mostly sleep: only compute threads are held against the processors.
  const std::string crowded = topology.oversubscription(threads_);
  if (!crowded.empty() && topology.local_rank == 0) log::warning(crowded);
  log::debug("threads: " + std::to_string(threads_) + " for computing, " + std::to_string(loaders) + " for loading");

  world.together([&] {
    if (lanes_ > 0 && chosen.gpu) {
      throw ConfigError(train.cite("lanes") + ": sums by lanes are made on the CPU; use run.device=cpu");
    }
    micro_batches_ = lanes_ > 0 ? count_lanes(train, world) : count_micro_batches(train, world);
    if (lanes_ > 0) first_lane_ = mpi::LaneTree::even(static_cast<int>(lanes_), world.size()).first_lane(world.rank());
  });
  const auto hosts = static_cast<int>(sections.at("comm").integer("hosts"));
  collectives_ = mpi::make_collectives(world, {.backend = sections.at("comm").text("backend"),
                                               .timeout_s = sections.at("comm").real("timeout_s"),
                                               .hosts = hosts,
                                               .gpu = chosen.gpu});

  std::shared_ptr<models::Model> built;
  Precision precision;
  const std::string remark = set_float32_products(train, device_);
  if (!remark.empty()) log::info(remark);
  world.together([&] {
    precision = precision_of(train);
    built = models::build(sections.at("model"), task, seed_, precision.parameters, tables.models);
    built->to(device_);
  });
  if (micro_batches_ > 1 && lanes_ == 0 && has_batch_norm(*built)) {
    log::warning(
        "train.micro_batch: batch normalisation takes the statistics of each micro_batch by itself, so the model "
        "trains otherwise than in one forward");
  }
  parallel::DdpOptions options = parallel::DdpOptions::from(sections.at("ddp"), *collectives_);
  options.lanes = static_cast<int>(lanes_);
  options.hosts = hosts;
  options.autocast = precision.autocast;
  options.recompute = parts_of(sections.at("model").text("recompute"));
  model_ = std::make_unique<parallel::DistributedDataParallel>(std::move(built), world, *collectives_, options);

  parallel::ParameterStore& store = model_->parameters();
  const optim::Rule* rule = nullptr;
  std::vector<optim::ParamGroup> groups;
  optim::OptimWrapper::WrapperOptions wrapper{
      .accumulation_steps = micro_batches_, .clip = {}, .scaler = precision.scaler};
  world.together([&] {
    const Section& optim = sections.at("optim");
    rule = &find_row(tables.rules, optim.text("name"), optim.cite("name"));
    groups = optim::build_groups(optim, *rule, describe_parameters(store));
    wrapper.clip = optim::Clip::parse(train.text("clip_grad"), train.cite("clip_grad"));
    wrapper.clip.is_by_group = train.text("clip_scope") == "group";
  });
  optimizer_ = std::make_unique<optim::OptimWrapper>(optim::Optimizer(*rule, std::move(groups), store), store, wrapper);
}

}  // namespace lockstep::engine
