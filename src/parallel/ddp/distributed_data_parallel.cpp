// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <torch/types.h>

#include <algorithm>

#include "batch/late_values.hpp"
#include "models/layers/recompute.hpp"
#include "mpi/process/topology.hpp"
#include "parallel/ddp/model_buffers.hpp"
#include "parallel/ddp/requirements.hpp"
#include "parallel/reducers/bucket_reducer.hpp"
#include "parallel/reducers/lane_reducer.hpp"
#include "parallel/reducers/separate_reducer.hpp"
#include "parallel/sharding/shard_blocks.hpp"
#include "parallel/sharding/shard_reducer.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel/store/shards.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel/store/transfers.hpp"

namespace lockstep::parallel {

namespace {

/// Normalizes by the statistics of the group of this rank.
void synchronize_batch_norm(models::Model& model, const mpi::Communicator& world, mpi::Collectives& collectives,
                            const DdpOptions& options) {
  const int ranks = options.batch_norm_ranks;
  world.all_or_throw([&] { batch_norms_of(model); });  // which refuses what cannot be synchronized
  if (ranks == 0) {
    convert_to_sync_batch_norm(model, collectives);
    return;
  }
  const int group = ranks > 0 ? world.rank() / ranks : mpi::Topology::of(world, options.hosts).host_index;
  convert_to_sync_batch_norm(model, *collectives.split(group));
}

/// The reducer of one rank alone: its own gradients are the average. No hooks, no buckets, no collectives.
class LocalReducer : public Reducer, public UnevenRanks {
 public:
  void prepare(Synchronization) override {}
  void finish() override {}
  void reset(GivenUp /*what*/) override {}
  void contribute_zeros() override {}
  void set_divisor(int /*ranks*/) override {}
};

std::unique_ptr<ShardRanks> shard_ranks_of(const mpi::Communicator& world, mpi::Collectives& all,
                                           const DdpOptions& options) {
  if (!options.sharding.is_within_hosts) return std::make_unique<ShardRanks>(all);
  const mpi::Topology topology = mpi::Topology::of(world, options.hosts);
  world.all_or_throw([&] { require_equal_hosts(topology); });
  return std::make_unique<ShardRanks>(all, topology);
}

}  // namespace

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                                                 mpi::Collectives& collectives, const DdpOptions& options)
    : model_(std::move(model)),
      world_(world.handle()),
      collectives_(&collectives),
      options_(options),
      late_places_(std::make_unique<batch::LatePlaces>()) {
  verify_same_model(*model_, world_, options_.ignored);
  world_.all_or_throw([&] {
    if (!options_.recompute.empty()) recompute_ = models::recompute_tap(*model_, options_.recompute);
  });
  if (options_.synchronizes_batch_norm) synchronize_batch_norm(*model_, world_, collectives, options_);
  std::vector<NamedParameter> parameters;
  world_.all_or_throw([&] {
    parameters = trained_parameters(*model_, options_.ignored);
    require_unwrapped(parameters);
    require_one_device(parameters);
    for (NamedParameter& parameter : parameters) {
      if (!options_.parts.empty()) parameter.part = options_.parts.at(parameter.name);
    }
  });
  // Autocast converts inputs where it computes in 16 bits.
  dtype_ = options_.autocast ? at::kFloat : parameters.front().tensor.scalar_type();
  device_ = parameters.front().tensor.device();
  copies_ = std::make_unique<BatchCopies>(device_);
  world_.all_or_throw([&] { require_supported_on(device_, options_); });
  buffers_ = std::make_unique<ModelBuffers>(*model_, collectives, options_.ignored);
  broadcast_from_root();
  const bool divides_gradients = options_.sharding.stage > 1;
  if (options_.reports_times && collectives.world_size() > 1 && !divides_gradients && !options_.separates_parts) {
    recorder_ = std::make_unique<StepRecorder>(make_stream_marks(device_));
  }
  if (options_.sharding.stage > 0) {
    shard(parameters);
  } else {
    replicate(parameters);
  }
  if (recorder_) store_->record_into(*recorder_);
  if (!reducer_) reducer_ = make_reducer(std::move(parameters));
  if (options_.comm_hook && !divides_gradients) choose_hook();
  store_->connect(*reducer_);
}

DistributedDataParallel::~DistributedDataParallel() = default;

/// Gives all ranks the root's values of everything that the parameter store does not distribute.
void DistributedDataParallel::broadcast_from_root() {
  for (const auto& item : model_->named_parameters()) {
    const bool is_ignored =
        std::find(options_.ignored.begin(), options_.ignored.end(), item.key()) != options_.ignored.end();
    const bool is_stored = item.value().requires_grad() && options_.root == 0;
    if (!is_ignored && !is_stored) broadcast(item.value(), world_, options_.root);
  }
  buffers_->broadcast_from(options_.root);
}

/// Builds the store in which every rank or every host holds all parameters.
void DistributedDataParallel::replicate(const std::vector<NamedParameter>& parameters) {
  const int copy = options_.shares_parameters ? mpi::Topology::of(world_, options_.hosts).host_index : world_.rank();
  store_ = std::make_unique<ParameterStore>(parameters, world_, *collectives_, world_.split(copy),
                                            options_.checks_writes, options_.sharding.is_as_on_gpu);
  slices_fit_ = world_.agree(store_->is_shared() == (collectives_->local_size() > 1));
}

/// Builds the store in which the state of training is divided among ranks, and from stage 2 on the reducer.
void DistributedDataParallel::shard(const std::vector<NamedParameter>& parameters) {
  const Sharding& sharding = options_.sharding;
  std::vector<ShardGroup> groups;
  UnitMembers units;
  world_.all_or_throw([&] {
    require_shardable(parameters, options_);
    if (sharding.stage == 3) {
      groups = shard_groups(*model_, parameters, sharding.blocks);
      units = members_by_type(groups, parameters);
    } else {
      units.members = layout_of(plan_buckets(specs_of(parameters), options_.reducer.limits));
      std::reverse(units.members.begin(), units.members.end());  // now in the order of forward
      units.group_of.resize(units.members.size());
    }
    units = divided_by_part(units, parameters);
  });
  const auto plan_of = sharding.owns_whole_parameters ? plan_owned_units : plan_units;
  shard_ranks_ = shard_ranks_of(world_, *collectives_, options_);
  const int slices = shard_ranks_->inside().world_size();
  const std::vector<Unit> plan = plan_of(specs_of(parameters), units.members, slices);
  store_ = std::make_unique<ParameterStore>(parameters, world_, *shard_ranks_, plan, sharding);
  if (sharding.stage == 1) {
    const bool is_one_place = collectives_->local_size() == 1 || collectives_->local_size() == slices;
    slices_fit_ = is_one_place && store_->as_tensors() == nullptr;
    return;
  }
  const auto release = [this](std::size_t unit) {
    if (gathering_) store_->shards()->release(unit);
  };
  reducer_ = std::make_unique<ShardReducer>(parameters, plan, *shard_ranks_, release, rounding_of_hook());
  if (sharding.stage == 3) {
    gathering_ = std::make_unique<BlockGathering>(*store_->shards(), groups, units.group_of);
  }
}

/// The reducer of gradients that every rank has whole.
std::unique_ptr<Reducer> DistributedDataParallel::make_reducer(std::vector<NamedParameter> parameters) {
  const int ranks = collectives_->world_size();
  const auto follow = [store = store_.get()](const std::vector<Bucket>& buckets) { store->follow_buckets(buckets); };
  const ReducerObserver observer{.recorder = recorder_.get(), .on_new_buckets = follow};
  if (options_.lanes > 0) {
    world_.all_or_throw([&] { require_lanes(parameters, options_, ranks); });
    return std::make_unique<LaneReducer>(
        std::move(parameters), [this] { return buffers_->all(); }, options_.reducer.limits, *collectives_,
        mpi::LaneTree::even(options_.lanes, ranks), observer);
  }
  if (ranks == 1) return std::make_unique<LocalReducer>();
  if (options_.separates_parts) {
    return std::make_unique<SeparateReducer>(parameters, options_.reducer, *collectives_, world_);
  }
  return std::make_unique<BucketReducer>(std::move(parameters), options_.reducer, *collectives_, world_, observer);
}

void DistributedDataParallel::choose_hook() {
  ChosenHook chosen;
  world_.all_or_throw([&] { chosen = options_.comm_hook(*collectives_); });
  hook_memory_ = std::move(chosen.memory);
  has_recordable_hook_ = chosen.is_recordable;
  set_comm_hook(*reducer_, std::move(chosen.hook), chosen.is_silent);
}

/// The type where gradients are divided among ranks: the type to which they are rounded.
std::optional<at::ScalarType> DistributedDataParallel::rounding_of_hook() {
  if (!options_.comm_hook) return std::nullopt;
  ChosenHook chosen;
  world_.all_or_throw([&] {
    chosen = options_.comm_hook(*collectives_);
    require_shardable(chosen, options_.sharding);
  });
  return chosen.rounding;
}

void DistributedDataParallel::begin_forward() {
  if (at::GradMode::is_enabled()) prepare_gradients();
  if (gathering_) gathering_->begin_forward();
}

/// Backward gives back what it does not need any more; a forward without one does it itself.
void DistributedDataParallel::end_forward() {
  if (gathering_ && !at::GradMode::is_enabled()) gathering_->end_forward();
}

std::optional<models::ScopedTap> DistributedDataParallel::tap_of_blocks() {
  if (!gathering_) return std::nullopt;
  const auto gather = [this](models::Block& block, const models::Tensors& inputs, const models::Forward& next) {
    return gathering_->run(block, inputs, next);
  };
  return std::optional<models::ScopedTap>(std::in_place, gather);
}

void DistributedDataParallel::prepare_gradients() {
  if (before_forward_) before_forward_();
  if (synchronizes_) synchronize_before_forward();
  const bool is_sliced = may_slice_ && slices_fit_ && !before_forward_ && options_.parts.empty() && supports_slices();
  const Synchronization mode = !synchronizes_ ? Synchronization::none
                               : is_sliced    ? Synchronization::sliced
                                              : Synchronization::whole;
  active_part_ ? reducer_->prepare_part(*active_part_, mode) : reducer_->prepare(mode);
}

bool DistributedDataParallel::supports_slices() const {
  const auto* const sliced = ability_of<SlicedReducer>(*reducer_);
  return sliced != nullptr && sliced->supports_slices();
}

/// Makes the buffers equal on all ranks, if the options request it.
void DistributedDataParallel::synchronize_before_forward() {
  const bool is_nothing_to_do = collectives_->world_size() == 1 || options_.buffers == BufferMode::off;
  if (is_nothing_to_do || reducer_->averages_lanes()) return;
  const StepRecorder::Meeting meeting(recorder_.get());
  if (options_.buffers == BufferMode::broadcast) buffers_->broadcast_from(buffer_root_);
  if (options_.buffers == BufferMode::average) synchronize_buffers();
}

bool DistributedDataParallel::watches_outputs() const {
  const auto* const adaptive = ability_of<AdaptiveReducer>(*reducer_);
  return at::GradMode::is_enabled() && adaptive != nullptr && adaptive->watches_outputs();
}

std::vector<at::Tensor> DistributedDataParallel::watch(std::vector<at::Tensor> outputs) {
  return dynamic_cast<AdaptiveReducer&>(*reducer_).watch(std::move(outputs));
}

optim::FlatParameters& DistributedDataParallel::parameters() noexcept { return *store_; }

optim::FlatParameters& DistributedDataParallel::part(std::size_t part) { return store_->part(part); }

void DistributedDataParallel::write_parameters(const std::function<void()>& body) { store_->write_whole(body); }

bool DistributedDataParallel::has_buckets() const { return !report_of(*reducer_).buckets.empty(); }

std::optional<models::ScopedTap> DistributedDataParallel::tap_of_recompute() const {
  if (!recompute_ || !at::GradMode::is_enabled()) return std::nullopt;
  return std::optional<models::ScopedTap>(std::in_place, *recompute_);
}

void DistributedDataParallel::synchronize_buffers() {
  if (!reducer_->averages_lanes()) buffers_->average();
}

void DistributedDataParallel::broadcast_state(int root) {
  // Whoever writes a copy of the parameters needs the values first.
  std::vector<at::Tensor> values;
  store_->read_whole([&] {
    for (std::size_t i = 0; i < store_->size(); ++i) {
      values.push_back(store_->parameter(i).tensor.detach().clone());
      broadcast(values.back(), *collectives_, root);
    }
  });
  store_->write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < store_->size(); ++i) store_->parameter(i).tensor.copy_(values[i]);
  });
  buffers_->broadcast_from(root);
}

DdpReport DistributedDataParallel::report() const {
  if (recorder_) return recorder_->report(world_);
  return {.steps = 0, .ranks = std::vector<StepTimeline>(static_cast<std::size_t>(world_.size()))};
}

void DistributedDataParallel::check_last_step() {
  if (auto* const adaptive = ability_of<AdaptiveReducer>(*reducer_)) adaptive->check_last_step();
  if (options_.synchronizes_batch_norm) check_last_batch(*model_);
}

void DistributedDataParallel::reset_state(GivenUp what) {
  if (recorder_) recorder_->drop_step();
  reducer_->reset(what);
  if (gathering_) store_->shards()->release_all();
  store_->drop_gradients();
}

}  // namespace lockstep::parallel
