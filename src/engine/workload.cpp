// SPDX-License-Identifier: BSD-3-Clause
#include "engine/workload.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/registry.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <unistd.h>

#include "core/text/text.hpp"
#include "data/source/roles.hpp"
#include "data/source/settings.hpp"
#include "engine/settings/loader_memory.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/saving_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/rollout.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/state/model_tensors.hpp"
#include "models/layers/outline.hpp"
#include "mpi/shared/lane_tree.hpp"
#include "parallel/sharding/shard_blocks.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kMaxStatFiles = 1000;

std::int64_t in_lines(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

std::int64_t count_of(const optim::Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count *= size;
  return count;
}

/// The state arrays of a parameter, as optim::Optimizer allocates and checkpoints store them.
/// @param slots  number of state arrays of the rule
StateSpec state_of(const optim::Rule& rule, const optim::Options& options, std::size_t slots,
                   const parallel::ParameterSpec& parameter, bool is_half, bool has_masters) {
  StateSpec spec{.arrays = static_cast<std::int64_t>(slots),
                 .element_bytes = parameter.dtype == DType::float64 ? 8 : 4,
                 .has_own_shapes = rule.state_shape() != nullptr};
  if (is_half && has_masters) ++spec.arrays;
  if (!spec.has_own_shapes) return spec;
  for (std::size_t slot = 0; slot < static_cast<std::size_t>(spec.arrays); ++slot) {
    const bool is_master = slot >= slots;
    const std::optional<optim::Shape> shape =
        is_master ? parameter.shape : rule.state_shape()(options, slot, parameter.shape);
    if (!shape) continue;
    const std::int64_t bytes = count_of(*shape) * spec.element_bytes;
    spec.own_bytes += bytes;
    spec.own_memory_bytes += in_lines(bytes);
  }
  return spec;
}

/// Adds the states of the parameters of one optimizer.
void add_states(const PartPlan& part, const ParamDtypeSettings& dtype, Workload& workload) {
  std::size_t slots = 0;
  for (const optim::ParamGroup& group : part.groups) {
    slots = std::max(slots, part.rule->state_names(group.options).size());
  }
  for (const optim::ParamGroup& group : part.groups) {
    for (const std::string& name : group.parameters) {
      const auto found = std::ranges::find(workload.parameters, name, &parallel::ParameterSpec::name);
      if (found == workload.parameters.end()) continue;
      const bool is_half = size_of(found->dtype) == 2;
      workload.states.at(static_cast<std::size_t>(found - workload.parameters.begin())) =
          state_of(*part.rule, group.options, slots, *found, is_half, dtype.has_masters);
    }
  }
}

/// The parameters of each block of the store, by number.
std::vector<std::vector<std::size_t>> blocks_of(const std::vector<parallel::NamedParameter>& parameters) {
  parallel::ShardGroup all;
  for (std::size_t i = 0; i < parameters.size(); ++i) all.members.push_back(i);
  return divided_by_part(members_by_type({all}, parameters), parameters).members;
}

std::vector<std::vector<std::size_t>> units_of(const models::Model& model, const StrategySettings& strategy,
                                               const std::vector<parallel::NamedParameter>& parameters,
                                               const std::vector<parallel::Bucket>& buckets) {
  parallel::UnitMembers units;
  if (strategy.stage == 3) {
    units = members_by_type(shard_groups(model, parameters, words_in(strategy.blocks)), parameters);
  } else {
    units.members = layout_of(buckets);
    std::reverse(units.members.begin(), units.members.end());  // the order of forward
    units.group_of.resize(units.members.size());
  }
  return divided_by_part(units, parameters).members;
}

void describe_model(const Sections& sections, const Registry& registry, const Task& task, Workload& workload) {
  const Section& train = sections.at("train");
  const ParamDtypeSettings dtype = ParamDtypeSettings::from(train);
  const auto model = models::outline(sections.at("model"), task, Precision::from(train).parameters, registry.models);
  model->set_loss(models::make_loss(sections.at("loss"), task, registry.losses));
  choose_trained(*model, FinetuneSettings::from(sections.at("finetune")));
  if (dtype.is_half()) narrow_parameters(*model);
  require_parts(sections, registry);
  const PartPlans parts = plan_parts(sections, registry, *model, 1);
  workload.remarks.insert(workload.remarks.end(), parts.remarks.begin(), parts.remarks.end());

  std::vector<parallel::NamedParameter> parameters = parallel::listed_parameters(*model);
  for (parallel::NamedParameter& parameter : parameters) {
    if (parts.has_parts()) parameter.part = parts.numbers.at(parameter.name);
  }
  workload.parameters = specs_of(parameters);
  workload.states.resize(parameters.size());
  for (const PartPlan& part : parts.parts) {
    add_states(part, dtype, workload);
    workload.owns_whole_parameters = workload.owns_whole_parameters || part.rule->is_whole();
  }
  workload.blocks = blocks_of(parameters);
  workload.buckets = plan_buckets(workload.parameters, parallel::BucketLimits::from(sections.at("ddp")));
  for (const at::Tensor& parameter : model->parameters()) {
    workload.parameter_count += parameter.numel();
    workload.parameter_bytes += static_cast<std::int64_t>(parameter.nbytes());
    if (!parameter.requires_grad()) workload.frozen_bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  for (const NamedTensor& buffer : buffers_of(*model)) {
    workload.buffer_bytes += static_cast<std::int64_t>(buffer.tensor.nbytes());
  }
  const StrategySettings strategy = StrategySettings::from(sections.at("strategy"));
  workload.strategy = strategy.name.value;
  if (strategy.name.value != "sharded") return;
  workload.stage = strategy.stage;
  workload.is_within_hosts = strategy.is_within_hosts;
  workload.units = units_of(*model, strategy, parameters, workload.buckets);
}

/// Counts the files of the samples, if each has its own.
void describe_files(const data::Dataset& dataset, Workload& workload) {
  const auto* const files = data::ability_of<data::SampleFiles>(dataset);
  std::error_code error;
  if (files == nullptr || dataset.size() == 0) return;
  if (!std::filesystem::is_regular_file(files->place({.index = 0}), error)) return;
  workload.files = dataset.size();
  const std::int64_t asked = std::min(workload.files, kMaxStatFiles);
  double bytes = 0;
  for (std::int64_t i = 0; i < asked; ++i) {
    const std::int64_t index = i * workload.files / asked;
    const std::uintmax_t size = std::filesystem::file_size(files->place({.index = index}), error);
    if (!error) bytes += static_cast<double>(size);
  }
  workload.is_sampled = asked < workload.files;
  workload.file_bytes = bytes * static_cast<double>(workload.files) / static_cast<double>(asked);
}

// ---- the plan of a job

/// Answers for one job what its ranks hold.
class JobPlanner {
 public:
  JobPlanner(const Workload& workload, const JobShape& shape) : workload_(workload), shape_(shape) {
    const bool is_alone = shape.ranks == 1;
    plan_.shape = shape;
    plan_.strategy = workload.strategy != "auto" ? workload.strategy : is_alone ? "single" : "ddp";
    plan_.backend = workload.backend != "auto"   ? workload.backend
                    : is_alone                   ? "self"
                    : shape.hosts == 1           ? "shm"
                    : shape.hosts == shape.ranks ? "mpi"
                                                 : "hierarchical";
    const bool has_shared_memory = plan_.backend == "shm" || plan_.backend == "hierarchical";
    is_shared_ =
        plan_.strategy == "ddp" && (workload.sharing == "true" || (workload.sharing == "auto" && has_shared_memory));
  }

  JobPlan make(std::int64_t cache_bytes) {
    for (const parallel::Bucket& bucket : workload_.buckets) {
      plan_.bucket_bytes.push_back(bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype)));
    }
    add_checkpoint();
    std::vector<int> numbers = {0, shape_.ranks / 2, shape_.ranks - 1};
    numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
    for (const int rank : numbers) plan_.ranks.push_back(rank_plan(rank));
    const HeldBytes& first = plan_.ranks.front().held;
    const std::int64_t shared = first.parameters + first.state + first.average;
    plan_.host_bytes = first.per_rank() * shape_.ranks_of(0);
    if (first.sharers > 1) plan_.host_bytes += shared - shared / first.sharers * shape_.ranks_of(0);
    add_warnings(cache_bytes);
    return std::move(plan_);
  }

 private:
  bool has_lanes() const { return workload_.batch.lanes.value > 0; }

  void add_checkpoint() {
    const bool has_shards = workload_.checkpoint_layout == "shards";
    const std::int64_t wanted = workload_.checkpoint_writers == 0 ? shape_.hosts : workload_.checkpoint_writers;
    plan_.writers = has_shards ? std::min<std::int64_t>(wanted, shape_.ranks) : 1;
    plan_.model_bytes = workload_.parameter_bytes + workload_.buffer_bytes;
    for (std::size_t i = 0; i < workload_.parameters.size(); ++i) {
      const StateSpec& state = workload_.states[i];
      const std::int64_t count = workload_.parameters[i].count();
      plan_.state_bytes += state.has_own_shapes ? state.own_bytes : state.arrays * count * state.element_bytes;
      if (workload_.has_average) plan_.state_bytes += count * state.element_bytes;
    }
    for (int host = 0; host < shape_.hosts; ++host) {
      const auto [begin, count] = data::share_of(shape_.ranks, host, shape_.hosts);
      std::int64_t bytes = 0;
      for (std::int64_t rank = begin; rank < begin + count; ++rank) bytes += written_by(static_cast<int>(rank));
      plan_.host_checkpoint_bytes = std::max(plan_.host_checkpoint_bytes, bytes);
    }
  }

  /// Writers are spread evenly over the ranks, as CheckpointSaver does it.
  std::int64_t written_by(int rank) const {
    const auto part = [&](std::int64_t r) { return static_cast<int>(r * plan_.writers / shape_.ranks); };
    if (rank > 0 && part(rank) == part(rank - 1)) return 0;
    return data::share_of(plan_.checkpoint_bytes(), part(rank), static_cast<int>(plan_.writers)).count;
  }

  PlannedRank rank_plan(int rank) const {
    PlannedRank planned{.rank = rank, .host = shape_.host_of(rank), .checkpoint_bytes = written_by(rank)};
    add_batch(planned);
    if (workload_.stage > 0) {
      add_slices(planned);
    } else {
      add_copies(planned);
    }
    planned.held.buffers = workload_.buffer_bytes + workload_.frozen_bytes;
    const LoaderMemory loader{.batch_bytes = planned.micro_batch_size * workload_.sample_bytes,
                              .prefetch = std::max<std::int64_t>(workload_.prefetch, 2 + planned.micro_batches),
                              .in_use = planned.micro_batches};
    planned.held.batches = planned.samples == 0 ? 0 : loader.bytes();
    return planned;
  }

  void add_batch(PlannedRank& planned) const {
    const std::int64_t global_batch = workload_.batch.global_batch_size.value;
    if (has_lanes()) {
      planned.micro_batches = data::share_of(workload_.batch.lanes.value, planned.rank, shape_.ranks).count;
      planned.micro_batch_size = global_batch / workload_.batch.lanes.value;
      planned.samples = planned.micro_batches * planned.micro_batch_size;
      return;
    }
    const std::int64_t max_size = workload_.batch.micro_batch.value;
    planned.samples = data::share_of(global_batch, planned.rank, shape_.ranks).count;
    planned.micro_batch_size = max_size == 0 ? planned.samples : std::min(max_size, planned.samples);
    if (planned.samples > 0) {
      planned.micro_batches = (planned.samples + planned.micro_batch_size - 1) / planned.micro_batch_size;
    }
  }

  /// A rank or a host holds all parameters.
  void add_copies(PlannedRank& planned) const {
    HeldBytes& held = planned.held;
    for (const std::vector<std::size_t>& block : workload_.blocks) {
      std::int64_t padded = 0;  // bytes of the parameters
      for (const std::size_t i : block) padded += in_lines(workload_.parameters[i].bytes());
      const auto element = static_cast<std::int64_t>(size_of(workload_.parameters[block.front()].dtype));
      add_state(block, padded / element, held);
      held.parameters += padded;
    }
    const int position = shape_.position_of(planned.rank);
    const int sharers = is_shared_ ? shape_.ranks_of(planned.host) : 1;
    held.sharers = sharers;
    held.gradients = gradient_bytes();
    planned.updated = updated_by(position, sharers);
  }

  void add_state(const std::vector<std::size_t>& members, std::int64_t count, HeldBytes& held) const {
    const StateSpec& state = workload_.states[members.front()];
    if (state.has_own_shapes) {
      for (const std::size_t i : members) held.state += workload_.states[i].own_memory_bytes;
    } else {
      held.state += state.arrays * count * state.element_bytes;
    }
    if (workload_.has_average) held.average += count * state.element_bytes;
  }

  std::int64_t gradient_bytes() const {
    std::int64_t bytes = 0;
    if (plan_.strategy == "single" || (shape_.ranks == 1 && !has_lanes())) {
      for (const parallel::ParameterSpec& parameter : workload_.parameters) bytes += parameter.bytes();
      return bytes;
    }
    for (const std::int64_t bucket : plan_.bucket_bytes) bytes += bucket;
    return has_lanes() ? bytes * lane_sums() : bytes;
  }

  /// Sums of lanes that a rank keeps at the same time: the same number on every rank.
  std::int64_t lane_sums() const {
    const std::int64_t lanes = workload_.batch.lanes.value;
    if (lanes < shape_.ranks) return 1;
    const mpi::LaneTree tree = mpi::LaneTree::even(static_cast<int>(lanes), shape_.ranks);
    int sums = 1;
    for (int rank = 0; rank < shape_.ranks; ++rank) sums = std::max(sums, tree.buffers_of(rank));
    return sums;
  }

  /// Elements that the rank at this position among those with one copy updates.
  std::int64_t updated_by(int position, int sharers) const {
    std::int64_t elements = 0;
    if (workload_.owns_whole_parameters) {
      std::vector<std::int64_t> counts;
      for (const parallel::ParameterSpec& parameter : workload_.parameters) counts.push_back(parameter.count());
      const std::vector<int> owners = parallel::balanced_owners(counts, sharers);
      for (std::size_t i = 0; i < counts.size(); ++i) elements += owners[i] == position ? counts[i] : 0;
      return elements;
    }
    for (const parallel::OwnedRange& range :
         divide_ownership(workload_.parameters, workload_.buckets, position, sharers, optim::kPieceElements)) {
      elements += range.end - range.begin;
    }
    return elements;
  }

  /// A rank holds slices of units.
  void add_slices(PlannedRank& planned) const {
    const bool is_in_host = workload_.is_within_hosts && shape_.hosts > 1;
    const int slices = is_in_host ? shape_.ranks_of(planned.host) : shape_.ranks;
    const int position = is_in_host ? shape_.position_of(planned.rank) : planned.rank;
    const auto plan_of = workload_.owns_whole_parameters ? parallel::plan_owned_units : parallel::plan_units;
    HeldBytes& held = planned.held;
    std::int64_t largest = 0;
    for (const parallel::Unit& unit : plan_of(workload_.parameters, workload_.units, slices)) {
      const auto element = static_cast<std::int64_t>(size_of(unit.dtype));
      std::vector<std::size_t> own;
      const std::int64_t begin = unit.begin(position);
      const std::int64_t end = unit.begin(position) + unit.slice(position);
      for (const parallel::Slot& slot : unit.slots) {
        const std::int64_t count = workload_.parameters[slot.parameter].count();
        const std::int64_t inside = std::min(end, slot.offset + count) - std::max(begin, slot.offset);
        if (inside > 0) own.push_back(slot.parameter);
        planned.updated += std::max<std::int64_t>(0, inside);
      }
      held.parameters += (workload_.stage == 3 ? unit.slice(position) : unit.count()) * element;
      if (!own.empty() || !workload_.states[unit.slots.front().parameter].has_own_shapes) {
        add_state(own.empty() ? std::vector<std::size_t>{unit.slots.front().parameter} : own, unit.slice(position),
                  held);
      }
      if (workload_.stage > 1) held.gradients += unit.slice(position) * element;
      largest = std::max(largest, unit.count() * element);
    }
    if (workload_.stage > 1) {
      held.gradients += largest;  // the unit that is being reduced
    } else {
      held.gradients = gradient_bytes();
    }
  }

  void warn(const std::string& text) { plan_.warnings.push_back(text); }

  void add_warnings(std::int64_t cache_bytes) {
    const std::int64_t global_batch = workload_.batch.global_batch_size.value;
    const std::int64_t ranks = shape_.ranks;
    const std::string batch = "train.global_batch_size = " + std::to_string(global_batch);
    if (has_lanes()) {
      warn_of_lanes(batch);
    } else if (global_batch < ranks) {
      warn(batch + " leaves " + std::to_string(ranks - global_batch) + " of " + std::to_string(ranks) +
           " ranks without a sample; a run would end with exit code 2. Increase it, or use fewer ranks");
    } else if (global_batch % ranks != 0) {
      warn(batch + " is not a multiple of " + std::to_string(ranks) + " ranks: " +
           std::to_string(ranks - global_batch % ranks) + " of them have one sample less and wait for the others");
    }
    if (plan_.strategy == "single" && ranks > 1) {
      warn("strategy.name = single requires one rank; a run would end with exit code 2. Use ddp");
    }
    if (plan_.backend == "shm" && shape_.hosts > 1) {
      warn("comm.backend = shm requires one host; a run would end with exit code 2. Use auto");
    }
    if (ranks % shape_.hosts != 0 && workload_.is_within_hosts) {
      warn(
          "strategy.shard_within = host requires the same number of ranks on every host; a run would end with exit "
          "code 2");
    }
    const auto largest = std::ranges::max_element(plan_.bucket_bytes);
    if (cache_bytes > 0 && ranks > 1 && largest != plan_.bucket_bytes.end() && *largest > cache_bytes) {
      warn("the largest gradient bucket has " + std::to_string(*largest) +
           " bytes, but the last level of cache of this machine has " + std::to_string(cache_bytes) +
           "; a smaller ddp.bucket_mb may be faster");
    }
  }

  void warn_of_lanes(const std::string& batch) {
    const std::int64_t lanes = workload_.batch.lanes.value;
    const std::string name = "train.lanes = " + std::to_string(lanes);
    if (workload_.batch.global_batch_size.value % lanes != 0) {
      warn(batch + " is not a multiple of " + name + "; a run would end with exit code 2");
    }
    if (lanes < shape_.ranks) {
      warn(name + " leaves " + std::to_string(shape_.ranks - lanes) + " of " + std::to_string(shape_.ranks) +
           " ranks without a lane; a run would end with exit code 2. Use at most as many ranks as lanes");
    } else if (lanes % shape_.ranks != 0) {
      warn(name + " is not a multiple of " + std::to_string(shape_.ranks) + " ranks: " +
           std::to_string(shape_.ranks - lanes % shape_.ranks) + " of them have one lane less and wait for the others");
    }
  }

  const Workload& workload_;
  JobShape shape_;
  bool is_shared_ = false;  // the ranks of a host share one copy of the parameters
  JobPlan plan_;
};

}  // namespace

int JobShape::ranks_of(int host) const { return static_cast<int>(data::share_of(ranks, host, hosts).count); }

int JobShape::host_of(int rank) const {
  const int size = ranks / hosts;
  const int larger = ranks % hosts;  // so many hosts have one rank more
  const int in_larger = larger * (size + 1);
  return rank < in_larger ? rank / (size + 1) : larger + (rank - in_larger) / size;
}

int JobShape::position_of(int rank) const {
  return rank - static_cast<int>(data::share_of(ranks, host_of(rank), hosts).begin);
}

Workload workload_of(const Sections& sections, const Registry& registry) {
  const Section& train = sections.at("train");
  Workload workload{.backend = sections.at("comm").text("backend"),
                    .sharing = sections.at("ddp").text("shared_parameters"),
                    .batch = BatchSettings::from(train)};
  data::OpenOptions options = open_options(sections, registry);
  options.used = used_splits({"train"});
  data::Splits splits = data::open(sections.at("data"), registry.sources, options);
  const Task task = splits.train->task();
  splits.train = trained_dataset(splits.train, sections);
  const std::int64_t global_batch = workload.batch.global_batch_size.value;
  const std::uint64_t seed = RunSettings::from(sections.at("run")).seed;
  const data::Sampler sampler =
      data::make_sampler(sections.at("data"), {splits.train.get(), global_batch, seed}, registry.samplers);
  workload.samples = splits.train->size();
  workload.sample_bytes = batch_bytes(loaded_layout(*splits.train, false), 1);
  workload.prefetch = data::DataSettings::from(sections.at("data")).prefetch;
  workload.steps_per_epoch = sampler.steps_per_epoch();
  workload.total_steps = RunBounds::from(train).total_steps({.steps_per_epoch = workload.steps_per_epoch});
  const SavingSettings saving = SavingSettings::from(sections.at("ckpt"));
  workload.checkpoint_layout = saving.layout;
  workload.checkpoint_writers = saving.writers;
  workload.has_average = sections.at("ema").text("kind") != "none";
  describe_files(*splits.train, workload);
  describe_model(sections, registry, task, workload);
  return workload;
}

JobPlan plan_job(const Workload& workload, const JobShape& shape, std::int64_t cache_bytes) {
  if (shape.hosts < 1 || shape.ranks < shape.hosts) {
    throw ConfigError("plan: " + std::to_string(shape.ranks) + " ranks cannot run on " + std::to_string(shape.hosts) +
                      " hosts; each host has at least one rank");
  }
  return JobPlanner(workload, shape).make(cache_bytes);
}

std::int64_t last_cache_bytes() {
  for (const int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (const long bytes = sysconf(level); bytes > 0) return bytes;
  }
  return 0;
}

}  // namespace lockstep::engine
