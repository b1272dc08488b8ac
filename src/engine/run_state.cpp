// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_state.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <ATen/Context.h>
#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "average_state.hpp"
#include "comm_state.hpp"
#include "differences.hpp"
#include "held_state.hpp"
#include "loop/trainer.hpp"
#include "optimizer_state.hpp"
#include "scaler_state.hpp"
#include "state_names.hpp"
#include "tensor_arrays.hpp"

namespace lockstep::engine {

namespace {

using checkpoints::Archive;
using checkpoints::Array;

constexpr const char* kFaultyMemory = "the run does not hold what was restored: its memory is at fault";

// ---- the live run

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Every parameter once, trained or not, under its first name.
std::vector<NamedTensor> parameters_of(const models::Model& model) {
  std::vector<NamedTensor> parameters;
  for (const auto& item : model.named_parameters()) {
    const bool is_known = std::any_of(parameters.begin(), parameters.end(),
                                      [&item](const NamedTensor& p) { return p.tensor.is_same(item.value()); });
    if (!is_known) parameters.push_back({item.key(), item.value()});
  }
  return parameters;
}

/// The other names of parameters that have several, each with the first one.
std::vector<std::pair<std::string, std::string>> tied_names_of(const models::Model& model) {
  std::vector<std::pair<std::string, std::string>> tied;
  const std::vector<NamedTensor> parameters = parameters_of(model);
  for (const auto& item : model.named_parameters()) {
    const auto first = std::find_if(parameters.begin(), parameters.end(),
                                    [&item](const NamedTensor& p) { return p.tensor.is_same(item.value()); });
    if (first->name != item.key()) tied.emplace_back(item.key(), first->name);
  }
  return tied;
}

std::vector<NamedTensor> buffers_of(const models::Model& model) {
  std::vector<NamedTensor> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

OptimizerPlace place_of(Strategy& strategy) {
  return {.group = kOptimizer,
          .optimizer = &strategy.optimizer().optimizer(),
          .store = &strategy.model().parameters(),
          .remedy = kResetOptim};
}

// ---- capture

void capture_model(Archive& archive, Strategy& strategy, bool is_writer) {
  const models::Model& model = strategy.model().model();
  parallel::ParameterStore& store = strategy.model().parameters();
  if (is_writer) {
    for (const auto& [name, tensor] : parameters_of(model)) {
      const bool is_here = store.shards() == nullptr || !tensor.requires_grad();
      if (is_here) archive.put(path(kParameters, name), array_of(tensor, name));
    }
  }
  for (std::size_t b = 0; store.shards() != nullptr && b < store.blocks().size(); ++b) {
    capture_block(archive, kParameters, store, b, store.bytes_of_block(b), store.blocks()[b].dtype, is_writer);
  }
  if (!is_writer) return;
  for (const auto& [name, first] : tied_names_of(model))
    archive.link(path(kParameters, name), path(kParameters, first));
  for (const auto& [name, tensor] : buffers_of(model)) archive.put(path(kBuffers, name), array_of(tensor, name));
}

/// 0 where every rank holds everything.
std::int64_t stage_of(Strategy& strategy) { return strategy.model().options().sharding.stage; }

void capture_progress(Archive& archive, Run& run, std::uint64_t seed) {
  const Progress& at = run.progress;
  archive.set("/", "step", at.step);
  archive.set("/", "epoch", at.epoch);
  archive.set("/", "samples_seen", at.samples);
  archive.set("/sampler", "algorithm", run.data.sampler().algorithm());
  archive.set("/sampler", "seed", static_cast<std::int64_t>(seed));
  archive.set("/sampler", "epoch", at.epoch);
  archive.set("/sampler", "samples_in_epoch", at.step_in_epoch * run.data.sampler().global_batch_size());
  archive.set("/sampler", "dataset_length", run.data.splits().train->size());
  archive.set("/sampler", "dataset_digest", static_cast<std::int64_t>(run.data.splits().train->digest()));
  archive.set("/sched/0", "last_step", at.step);
  archive.set("/sched/0", "first_step", run.schedule.begin());
  archive.set("/sched/0", "factor",
              run.schedule.factor(std::max(run.schedule.begin(), at.step - 1),
                                  run.strategy.optimizer().optimizer().groups().front()));
}

/// LibTorch's default generator of every rank. Lockstep's own draws never depend on it; a user's code may.
void capture_generators(Archive& archive, const mpi::Communicator& world, bool is_writer) {
  const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  const auto bytes = static_cast<std::size_t>(state.numel());
  const auto all = std::make_shared<std::vector<std::byte>>(bytes * static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::byte>(parallel::bytes_of(state)), std::span<std::byte>(*all));
  if (!is_writer) return;
  archive.put("/rng/cpu", {.dtype = DType::uint8,
                           .shape = {world.size(), state.numel()},
                           .bytes = std::as_bytes(std::span(*all)),
                           .owner = all});
}

void capture_hooks(Archive& archive, const HookList& hooks) {
  for (const auto& [priority, hook] : hooks) {
    if (!hook->state_name().empty()) hook->save_state(archive, path(kHooks, hook->state_name()));
  }
}

// ---- comparison and restore

void compare_model(Differences& differences, const Archive& archive, const models::Model& model) {
  const auto compare = [&](const std::string& group, const std::vector<NamedTensor>& live) {
    std::set<std::string> known;
    for (const auto& [name, tensor] : live) known.insert(checkpoints::encode_name(name));
    for (const auto& [name, first] : tied_names_of(model)) known.insert(checkpoints::encode_name(name));
    std::vector<std::string> unused = archive.arrays_in(group);
    std::erase_if(unused, [&known](const std::string& name) { return known.contains(name); });
    for (const auto& [name, tensor] : live) differences.expect_array(path(group, name), tensor, kPartial, unused);
    for (const std::string& name : unused) differences.add(group + "/" + name + " is not in the run's model", kPartial);
  };
  compare(kParameters, parameters_of(model));
  compare(kBuffers, buffers_of(model));
}

void compare_data(Differences& differences, const Archive& archive, const Run& run, std::uint64_t seed) {
  const data::Dataset& train = *run.data.splits().train;
  const std::int64_t length = archive.integer("/sampler", "dataset_length");
  if (length != train.size()) {
    differences.add(
        "it was trained on " + std::to_string(length) + " samples, the run's data has " + std::to_string(train.size()),
        kResetSampler);
  } else if (archive.integer("/sampler", "dataset_digest") != static_cast<std::int64_t>(train.digest())) {
    differences.add("it was trained on other data of the same length", kResetSampler);
  }
  const std::string algorithm = archive.text("/sampler", "algorithm");
  if (algorithm != run.data.sampler().algorithm()) {
    differences.add("its samples came by " + algorithm + ", the run's come by " + run.data.sampler().algorithm(),
                    kResetSampler);
  }
  if (archive.integer("/sampler", "seed") != static_cast<std::int64_t>(seed)) {
    differences.add("its run.seed is " + std::to_string(archive.integer("/sampler", "seed")), kResetSampler);
  }
}

/// Another number of ranks is no fault: no state of ours depends on these generators.
void compare_generators(Differences& differences, const Archive& archive) {
  const Array& saved = archive.array("/rng/cpu");
  const std::int64_t live = at::globalContext().defaultGenerator(at::kCPU).get_state().numel();
  if (saved.shape.size() == 2 && saved.shape[1] == live) return;
  differences.add("its generators have a state of " +
                      (saved.shape.size() == 2 ? std::to_string(saved.shape[1]) : std::string("unknown")) +
                      " bytes, those of this LibTorch (" TORCH_VERSION ") " + std::to_string(live),
                  kResetRng);
}

/// What would change the bits of a run whose bits should not depend on where it runs.
void compare_lanes(Differences& differences, const Archive& archive, const Strategy& strategy) {
  const std::int64_t lanes = archive.integer("/", "lanes");
  if (lanes != strategy.lanes()) {
    differences.add("its train.lanes is " + std::to_string(lanes) + ", the run's is " +
                    std::to_string(strategy.lanes()));
  } else if (lanes > 0 && archive.integer("/", "threads") != strategy.threads()) {
    differences.add("it was trained with run.threads = " + std::to_string(archive.integer("/", "threads")) +
                    ", this run has " + std::to_string(strategy.threads()));
  }
}

/// What fits; whatever does not was either refused before or is to be passed over.
void load_model(Strategy& strategy, const Archive& archive) {
  const torch::NoGradGuard no_grad;
  const models::Model& model = strategy.model().model();
  const auto load = [&archive](const std::string& group, const std::vector<NamedTensor>& live) {
    for (const auto& [name, tensor] : live) {
      if (const Array* saved = fitting(archive, path(group, name), tensor)) copy_to(tensor, *saved);
    }
  };
  strategy.model().parameters().write_whole([&] { load(kParameters, parameters_of(model)); });
  load(kBuffers, buffers_of(model));
}

/// That the live run now holds the bytes of the archive, on this rank too.
void verify_restored(Strategy& strategy, const Archive& archive, const RestoreOptions& options) {
  const auto verify = [&archive](const std::string& at, const at::Tensor& live) {
    const Array* const saved = fitting(archive, at, live);
    if (saved == nullptr) return;
    const Array now = array_of(live, at);
    if (now.bytes.data() == saved->bytes.data()) return;  // its digest was taken here
    if (!now.bytes.empty() && std::memcmp(now.bytes.data(), saved->bytes.data(), now.bytes.size()) != 0) {
      throw CheckpointError(archive.origin(), at, kFaultyMemory);
    }
  };
  const auto verify_held = [&](const HeldState& held) {
    if (held.is_whole()) return verify(held.at, held.like);
    const Array* const saved = fitting(archive, held.at, held.like);
    if (saved == nullptr) return;
    const at::Tensor now = held.over(held.bytes.data()).cpu();
    if (std::memcmp(now.const_data_ptr(), held.part_of(*saved).const_data_ptr(), held.bytes.size()) != 0) {
      throw CheckpointError(archive.origin(), held.at, kFaultyMemory);
    }
  };
  const models::Model& model = strategy.model().model();
  for (const auto& [name, tensor] : parameters_of(model)) verify(path(kParameters, name), tensor);
  for (const auto& [name, tensor] : buffers_of(model)) verify(path(kBuffers, name), tensor);
  if (!options.resets_optim) for_each_state(place_of(strategy), verify_held);
  if (strategy.average() != nullptr && strategy.average()->has_begun()) for_each_average(strategy, verify_held);
}

void load_generators(const Archive& archive, const mpi::Communicator& world) {
  const at::Tensor states = tensor_over(archive.array("/rng/cpu"));
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const bool fits = states.size(0) == world.size() && states.size(1) == generator.get_state().numel();
  if (fits) generator.set_state(states[world.rank()].clone());
}

void restore_hooks(const Archive& archive, const HookList& hooks) {
  const std::vector<std::string> stored = archive.groups_in(kHooks);
  for (const auto& [priority, hook] : hooks) {
    const std::string name = checkpoints::encode_name(hook->state_name());
    if (!name.empty() && std::find(stored.begin(), stored.end(), name) != stored.end()) {
      hook->load_state(archive, kHooks + "/" + name);
    }
  }
}

}  // namespace

checkpoints::Archive capture(Trainer& trainer, const std::string& config_ini, bool is_writer) {
  Run& run = trainer.run();
  Strategy& strategy = run.strategy;
  strategy.model().synchronise_buffers();
  Archive archive;
  if (is_writer) {
    capture_progress(archive, run, strategy.seed());
    archive.set("/", "world_size", static_cast<std::int64_t>(strategy.world().size()));
    archive.set("/", "lanes", strategy.lanes());
    archive.set("/", "threads", static_cast<std::int64_t>(strategy.threads()));
    archive.set("/", "sharding", stage_of(strategy));
    archive.set("/", "parent_digest", run.origin.parent_digest);
    archive.set("/", "run_id", run.origin.run_id);
    archive.put("/meta/config_ini", checkpoints::text_array(config_ini));
    archive.put("/meta/env_json", checkpoints::text_array(run.origin.environment_json));
    archive.put("/meta/lineage", checkpoints::text_array(run.origin.lineage));
    capture_scaler(archive, kScaler, strategy.optimizer());
    archive.set("/", "precision", strategy.precision());
  }
  capture_model(archive, strategy, is_writer);
  capture_optimizer(archive, place_of(strategy), is_writer);
  capture_average(archive, strategy, is_writer);
  capture_generators(archive, strategy.world(), is_writer);
  capture_comm(archive, strategy, is_writer);
  run.hooks.each(&Hook::before_save, run.view);
  if (is_writer) capture_hooks(archive, run.hooks);
  return archive;
}

checkpoints::Homes homes_of(Strategy& strategy, const RestoreOptions& options) {
  checkpoints::Homes homes;
  if (options.is_partial || !options.renames.empty()) return homes;
  const auto add = [&homes](const std::string& at, const at::Tensor& live) {
    if (!live.is_cpu() || !live.is_contiguous()) return;
    homes[at] = {.memory = {static_cast<std::byte*>(live.mutable_data_ptr()), live.nbytes()}};
  };
  const parallel::ParameterStore& store = strategy.model().parameters();
  if (store.shards() != nullptr) return homes;
  for (std::size_t i = 0; i < store.size(); ++i) {
    add(path(kParameters, store.parameter(i).name), store.parameter(i).tensor);
  }
  if (!options.resets_optim) {
    for_each_state(place_of(strategy), [&add](const HeldState& held) { add(held.at, held.like); });
  }
  if (!options.resets_average) {
    for_each_average(strategy, [&add](const HeldState& held) { add(held.at, held.like); });
  }
  std::size_t total = 0;
  for (const auto& [at, home] : homes) total += home.memory.size();
  const auto sharers = static_cast<std::size_t>(store.sharers().size());
  std::size_t before = 0;
  for (auto& [at, home] : homes) {  // about as many bytes for each
    home.is_read_here = before / (total / sharers + 1) == static_cast<std::size_t>(store.sharers().rank());
    before += home.memory.size();
  }
  for (const auto& [name, tensor] : buffers_of(strategy.model().model())) add(path(kBuffers, name), tensor);
  return homes;
}

std::vector<std::string> restore(Trainer& trainer, const checkpoints::Archive& given, const RestoreOptions& options) {
  Run& run = trainer.run();
  Strategy& strategy = run.strategy;
  Archive archive;
  std::vector<std::string> passed_over;
  strategy.world().together([&] {
    archive = renamed(given, options.renames);
    Differences of_model(archive);
    compare_model(of_model, archive, strategy.model().model());
    if (options.is_partial) {
      passed_over = of_model.all();
    } else {
      of_model.throw_if_any();
    }
    Differences differences(archive);
    if (!options.resets_optim) compare_steps(differences, archive, place_of(strategy));
    if (!options.resets_optim && !options.is_partial) compare_optimizer(differences, archive, place_of(strategy));
    if (!options.resets_sampler) compare_data(differences, archive, run, strategy.seed());
    if (!options.resets_rng) compare_generators(differences, archive);
    if (!options.resets_average && !options.is_partial) compare_average(differences, archive, strategy);
    compare_lanes(differences, archive, strategy);
    differences.throw_if_any();
    run.schedule.restart_at(options.resets_sched ? archive.integer("/", "step")
                                                 : archive.integer("/sched/0", "first_step"));
    run.resume_at(archive.integer("/", "step"), options.resets_sampler ? 0 : archive.integer("/sampler", "epoch"),
                  options.resets_sampler ? 0 : archive.integer("/sampler", "samples_in_epoch"),
                  archive.integer("/", "samples_seen"));
  });
  load_model(strategy, archive);
  if (!options.resets_optim) {
    load_optimizer(archive, place_of(strategy));
    strategy.world().together([&] { restore_scaler(strategy.optimizer(), archive, kScaler); });
  }
  if (!options.resets_average) restore_average(strategy, archive);
  if (!options.resets_rng) load_generators(archive, strategy.world());
  if (!options.is_partial) {
    restore_comm(strategy, archive);
    strategy.world().together([&] { restore_hooks(archive, run.hooks); });
  }
  strategy.model().parameters().read_whole(
      [&] { strategy.world().together([&] { verify_restored(strategy, archive, options); }); });
  return passed_over;
}

std::string exactness_of(Trainer& trainer, const checkpoints::Archive& archive, const RestoreOptions& options) {
  if (options.is_partial || options.resets_optim || options.resets_sched || options.resets_sampler) {
    return "statistical, because not all of the state was taken over";
  }
  Strategy& strategy = trainer.run().strategy;
  const std::int64_t stage = archive.has_attribute("/", "sharding") ? archive.integer("/", "sharding") : 0;
  if (stage != stage_of(strategy) && strategy.world().size() > 1) {
    return "order, because it was written by a run of sharding stage " + std::to_string(stage) +
           " (0: none), which rounds sums otherwise";
  }
  const std::string by_comm = comm_difference(strategy, archive);
  if (by_comm.starts_with("statistical")) return by_comm;
  if (archive.has_attribute("/", "precision") && archive.text("/", "precision") != strategy.precision()) {
    return "statistical, because train.precision is " + strategy.precision() + " and was " +
           archive.text("/", "precision");
  }
  const auto ranks = archive.integer("/", "world_size");
  if (ranks != strategy.world().size() && strategy.lanes() == 0) {
    return "order, because it was written by " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
           " and train.lanes is off";
  }
  if (archive.integer("/", "threads") != strategy.threads()) {
    return "order, because it was written with run.threads = " + std::to_string(archive.integer("/", "threads"));
  }
  return by_comm.empty() ? "bitwise" : by_comm;
}

void restore_model(Strategy& strategy, const checkpoints::Archive& archive) {
  strategy.world().together([&] {
    Differences differences(archive);
    compare_model(differences, archive, strategy.model().model());
    differences.throw_if_any();
  });
  load_model(strategy, archive);
}

}  // namespace lockstep::engine
