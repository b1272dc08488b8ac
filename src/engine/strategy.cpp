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

#include <algorithm>
#include <sstream>
#include <utility>

#include "param_groups.hpp"
#include "precision.hpp"
#include "process_setup.hpp"

namespace lockstep::engine {

namespace {

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

/// What an optimizer needs that compares losses with their own gradients.
void require_own_gradients(const Section& train, const Section& ddp, const std::string& rule) {
  const std::string why = " has no place beside " + rule + ", which compares losses with their own gradients";
  if (!train.text("clip_grad").empty()) throw ConfigError(train.cite("clip_grad") + why);
  if (precision_of(train).scaler) throw ConfigError(train.cite("precision") + ": fp16" + why + "; take bf16");
  if (train.text("nonfinite") != "stop") throw ConfigError(train.cite("nonfinite") + why);
  if (ddp.text("comm_hook") != "none") throw ConfigError(ddp.cite("comm_hook") + why);
}

bool has_batch_norm(const models::Model& model) {
  const auto modules = model.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<const models::BatchNorm*>(module.get()) != nullptr;
  });
}

std::vector<optim::ModelAverage::NamedBuffer> averaged_buffers(const models::Model& model) {
  std::vector<optim::ModelAverage::NamedBuffer> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

}  // namespace

Strategy::Strategy(const Sections& sections, const mpi::Communicator& world, const Tables& tables)
    : sections_(sections),
      world_(&world),
      tables_(&tables),
      seed_(static_cast<std::uint64_t>(sections.at("run").integer("seed"))),
      comm_hook_(sections.at("ddp").text("comm_hook")),
      precision_(sections.at("train").text("precision")) {
  const Section& run = section("run");
  const Section& train = section("train");
  const mpi::Topology topology = mpi::Topology::of(world);
  // First of all: LibTorch settles once whether there is CUDA.
  const mpi::DeviceChoice chosen = mpi::choose_device(run.text("device"), world, topology.local_rank);
  if (!chosen.remark.empty() && world.is_root()) log::warning(chosen.remark);
  if (chosen.gpu) device_ = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(chosen.gpu->index()));
  log::debug("device: " + (chosen.gpu ? device_.str() + " (" + chosen.gpu->name() + ")" : std::string("cpu")));
  lanes_ = train.integer("lanes");
  threads_ = set_threads(run, topology, lanes_ > 0);
  const auto loaders = static_cast<int>(section("data").integer("workers"));
  // Loader threads mostly sleep: only compute threads are held against the processors.
  const std::string crowded = topology.oversubscription(threads_);
  if (!crowded.empty() && topology.local_rank == 0) log::warning(crowded);
  log::debug("threads: " + std::to_string(threads_) + " for computing, " + std::to_string(loaders) + " for loading");
  if (run.boolean("diff_rank_seed")) rank_of_draws_ = static_cast<std::uint64_t>(world.rank());

  const std::string remark = set_float32_products(train, device_);
  if (!remark.empty()) log::info(remark);

  world.together([&] {
    set_up_process(run, world.is_root());
    precision_of(train);  // throws early
    if (lanes_ > 0 && chosen.gpu) {
      throw ConfigError(train.cite("lanes") + ": sums by lanes are made on the CPU; use run.device=cpu");
    }
    micro_batches_ = lanes_ > 0 ? count_lanes(train, world) : count_micro_batches(train, world);
    if (lanes_ > 0) first_lane_ = mpi::LaneTree::even(static_cast<int>(lanes_), world.size()).first_lane(world.rank());
  });
  const Section& comm = section("comm");
  collectives_ = mpi::make_collectives(world, {.backend = comm.text("backend"),
                                               .timeout_s = comm.real("timeout_s"),
                                               .hosts = static_cast<int>(comm.integer("hosts")),
                                               .gpu = chosen.gpu});
}

std::shared_ptr<models::Model> Strategy::build_model(const Task& task, std::shared_ptr<models::Model> ready) const {
  std::shared_ptr<models::Model> built = std::move(ready);
  if (built == nullptr) {
    const at::ScalarType dtype = precision_of(section("train")).parameters;
    built = models::build(section("model"), task, seed_, dtype, tables_->models);
  }
  built->to(device_);
  return built;
}

parallel::DdpOptions Strategy::wrapper_options() const {
  parallel::DdpOptions options = parallel::DdpOptions::from(section("ddp"), *collectives_);
  options.lanes = static_cast<int>(lanes_);
  options.hosts = static_cast<int>(section("comm").integer("hosts"));
  options.autocast = precision_of(section("train")).autocast;
  options.recompute = parts_of(section("model").text("recompute"));
  lay_out(options);
  return options;
}

Strategy& Strategy::prepare(const Task& task, Ready ready) {
  if (is_prepared()) return *this;
  std::shared_ptr<models::Model> built;
  world_->together([&] { built = build_model(task, std::move(ready.model)); });
  if (micro_batches_ > 1 && lanes_ == 0 && has_batch_norm(*built)) {
    log::warning(
        "train.micro_batch: batch normalisation takes the statistics of each micro_batch by itself, so the model "
        "trains otherwise than in one forward");
  }
  model_ =
      std::make_unique<parallel::DistributedDataParallel>(std::move(built), *world_, *collectives_, wrapper_options());
  parallel::ParameterStore& store = model_->parameters();
  GroupPlan plan;
  const optim::AverageRule* average = nullptr;
  optim::AverageOptions average_options;
  optim::OptimWrapper::WrapperOptions wrapper{.accumulation_steps = micro_batches_};
  world_->together([&] {
    const Section& optim = section("optim");
    if (ready.rule == nullptr) {
      ready.rule = &find_row(tables_->rules, optim.text("name"), optim.cite("name"));
      plan = plan_groups(sections_, *ready.rule, model_->model(), world_->size());
      ready.groups = std::move(plan.groups);
    }
    average = optim::find_average(section("ema"));
    average_options = optim::AverageOptions::from(section("ema"));
    const Section& train = section("train");
    wrapper.scaler = precision_of(train).scaler;
    wrapper.skips_nonfinite = train.text("nonfinite") != "stop";
    wrapper.clip = optim::Clip::parse(train.text("clip_grad"), train.cite("clip_grad"));
    wrapper.clip.is_by_group = train.text("clip_scope") == "group";
    if (ready.rule->uses_closure()) require_own_gradients(train, section("ddp"), ready.rule->name);
    if (ready.rule->uses_closure() && device_.is_cuda()) {
      throw ConfigError(section("optim").cite("name") + ": the steps of " + ready.rule->name +
                        " are made on the CPU; use run.device=cpu");
    }
    if (ready.rule->is_whole()) store.own_whole_parameters();  // here all ranks refuse together
  });
  if (world_->is_root()) {
    for (const std::string& remark : plan.remarks) log::warning(remark);
    if (!plan.scaling.empty()) log::info(plan.scaling);
  }
  optimizer_ = std::make_unique<optim::OptimWrapper>(optim::Optimizer(*ready.rule, std::move(ready.groups), store),
                                                     store, wrapper);
  if (average != nullptr) {
    average_ = std::make_unique<optim::ModelAverage>(*average, average_options, store,
                                                     [this] { return averaged_buffers(model_->model()); });
  }
  return *this;
}

SingleDeviceStrategy::SingleDeviceStrategy(const Sections& sections, const mpi::Communicator& world,
                                           const Tables& tables)
    : Strategy(sections, world, tables) {
  world.together([&] {
    if (world.size() == 1) return;
    throw ConfigError(section("strategy").cite("name") + ": single is for one rank, but there are " +
                      std::to_string(world.size()) + "; use ddp");
  });
}

void ShardedStrategy::lay_out(parallel::DdpOptions& options) const {
  const Section& strategy = section("strategy");
  options.shares_parameters = false;
  options.sharding = {.stage = static_cast<int>(strategy.integer("stage")),
                      .blocks = parts_of(strategy.text("blocks")),
                      .prefetches = strategy.boolean("prefetch"),
                      .offloads = strategy.boolean("offload")};
}

std::unique_ptr<Strategy> make_strategy(const Sections& sections, const mpi::Communicator& world,
                                        const Tables& tables) {
  const std::string& name = sections.at("strategy").text("name");
  if (name == "sharded") return std::make_unique<ShardedStrategy>(sections, world, tables);
  const bool is_single = name == "single" || (name == "auto" && world.size() == 1);
  if (is_single) return std::make_unique<SingleDeviceStrategy>(sections, world, tables);
  return std::make_unique<DdpStrategy>(sections, world, tables);
}

KeySpecs strategy_keys() {
  return {
      {.name = "strategy.name",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "single: one rank; ddp: every rank holds the whole model; sharded: each rank holds a part of what "
               "strategy.stage says; auto: single for one rank, else ddp",
       .choices = {"auto", "single", "ddp", "sharded"}},
      {.name = "strategy.stage",
       .type = KeyType::integer,
       .default_value = "3",
       .help = "what sharded divides among ranks: 1: the optimizer's state; 2: gradients, too; 3: parameters, too",
       .min = 1,
       .max = 3},
      {.name = "strategy.blocks",
       .type = KeyType::text,
       .default_value = "",
       .help = "stage 3: blocks whose parameters are gathered together (\"block*\", several by commas); empty: the "
               "outermost ones that consist of blocks"},
      {.name = "strategy.prefetch",
       .type = KeyType::boolean,
       .default_value = "true",
       .help = "stage 3: gather the next block's parameters while one computes"},
      {.name = "strategy.offload",
       .type = KeyType::boolean,
       .default_value = "false",
       .help = "sharded on GPUs: keep the optimizer's state in the host's memory, whose processor then updates; on the "
               "CPU it changes nothing"},
  };
}

}  // namespace lockstep::engine
