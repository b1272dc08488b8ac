// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/table.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/recompute.hpp>
#include <lockstep/mpi/topology.hpp>
#include <lockstep/parallel/anomalous_parameters.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/sync_batch_norm.hpp>
#include <lockstep/parallel/tensor_collectives.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <exception>

#include "shard_blocks.hpp"
#include "shards.hpp"
#include "step_recorder.hpp"

namespace lockstep::parallel {

namespace {

BufferMode buffer_mode(const std::string& name) {
  if (name == "broadcast") return BufferMode::broadcast;
  return name == "average" ? BufferMode::average : BufferMode::off;
}

void require_one_device(const std::vector<NamedParameter>& parameters) {
  const at::Device device = parameters.front().tensor.device();
  for (const NamedParameter& parameter : parameters) {
    if (parameter.tensor.device() == device) continue;
    throw ConfigError("ddp: parameter '" + parameters.front().name + "' is on " + device.str() + ", '" +
                      parameter.name + "' on " + parameter.tensor.device().str() +
                      "; move the model to one device before it is wrapped");
  }
}

}  // namespace

DdpOptions DdpOptions::from(const Section& ddp, const mpi::Collectives& collectives) {
  DdpOptions options;
  options.reducer.limits.bucket_bytes = ddp.integers("bucket_bytes");
  options.reducer.limits.last_bucket_bytes = ddp.integer("last_bucket_bytes");
  options.reducer.finds_unused = ddp.boolean("find_unused_parameters");
  options.reducer.has_static_graph = ddp.boolean("static_graph");
  options.buffers = buffer_mode(ddp.text("buffers"));
  options.synchronises_batch_norm = ddp.boolean("sync_batch_norm");
  const std::string& check = ddp.text("detect_anomalous_params");
  options.anomaly_check = check == "off"    ? AnomalyCheck::off
                          : check == "once" ? AnomalyCheck::once
                                            : AnomalyCheck::always;
  options.weighs_samples = ddp.boolean("weigh_samples");
  options.checks_writes = ddp.boolean("check_writes");
  options.reports_times = ddp.boolean("report");
  if (ddp.text("comm_hook") != "none") {
    const CommHookRow& row = find_row(builtin_comm_hooks(), ddp.text("comm_hook"), ddp.cite("comm_hook"));
    options.comm_hook = [make = row.make, ddp](mpi::Collectives& all) { return make(ddp, all); };
  }
  const std::string& shares = ddp.text("shared_parameters");
  // The same on every rank, though some may be alone on their hosts.
  const bool has_shared_memory = collectives.name() == "shm" || collectives.name() == "hierarchical";
  options.shares_parameters = shares == "true" || (shares == "auto" && has_shared_memory);
  return options;
}

DistributedDataParallel::DistributedDataParallel(std::shared_ptr<models::Model> model, const mpi::Communicator& world,
                                                 mpi::Collectives& collectives, const DdpOptions& options)
    : model_(std::move(model)), world_(world.handle()), collectives_(&collectives), options_(options) {
  verify_same_model(*model_, world_, options_.ignored);
  world_.together([&] {
    if (!options_.recompute.empty()) tap_ = models::recompute_tap(*model_, options_.recompute);
  });
  if (options_.synchronises_batch_norm) convert_to_sync_batch_norm(*model_, collectives);
  std::vector<NamedParameter> parameters;
  world_.together([&] {
    parameters = trained_parameters(*model_, options_.ignored);
    require_unwrapped(parameters);
    require_one_device(parameters);
  });
  dtype_ = parameters.front().tensor.scalar_type();
  device_ = parameters.front().tensor.device();
  world_.together([&] {
    if (device_.is_cpu()) return;
    if (options_.shares_parameters) {
      throw ConfigError("ddp.shared_parameters=true is for the CPU: GPUs do not share memory; use auto");
    }
    if (options_.checks_writes) {
      throw ConfigError("ddp.check_writes=true is for the CPU: a GPU's memory cannot be made read-only; use false");
    }
  });
  for (const auto& item : model_->named_parameters()) {
    const bool is_ignored =
        std::find(options_.ignored.begin(), options_.ignored.end(), item.key()) != options_.ignored.end();
    const bool is_stored = item.value().requires_grad() && options_.root == 0;
    if (!is_ignored && !is_stored) broadcast(item.value(), world_, options_.root);
  }
  broadcast_buffers(options_.root);
  if (options_.sharding.stage > 0) {
    shard(parameters);
  } else {
    const int copy = options_.shares_parameters ? mpi::Topology::of(world_, options_.hosts).host_index : world_.rank();
    store_ =
        std::make_unique<ParameterStore>(parameters, world_, collectives, world_.split(copy), options_.checks_writes);
    slices_fit_ = world_.agree(store_->is_shared() == (collectives.local_size() > 1));
  }
  if (options_.reports_times && collectives.world_size() > 1 && !shards_) recorder_ = std::make_unique<StepRecorder>();
  if (recorder_) store_->record_into(*recorder_);
  if (options_.lanes > 0) {
    world_.together([&] { require_lanes(parameters); });
    lanes_ = std::make_unique<LaneReducer>(
        std::move(parameters), [this] { return buffers(); }, options_.reducer.limits, collectives,
        mpi::LaneTree::even(options_.lanes, collectives.world_size()));
    if (recorder_) lanes_->record_into(*recorder_);
    store_->connect(*lanes_);
  } else if (shards_) {
    store_->connect(*shards_);
  } else {
    reducer_ = std::make_unique<GradientReducer>(std::move(parameters), options_.reducer, collectives, world_);
    if (options_.comm_hook) choose_hook();
    if (recorder_) reducer_->record_into(*recorder_);
    store_->connect(*reducer_);
  }
}

DistributedDataParallel::~DistributedDataParallel() = default;

/// Divides the state of training among ranks, as much of it as the stage says.
void DistributedDataParallel::shard(const std::vector<NamedParameter>& parameters) {
  const Sharding& sharding = options_.sharding;
  std::vector<ShardGroup> groups;
  UnitMembers units;
  world_.together([&] {
    require_shardable(parameters);
    if (sharding.stage == 3) {
      groups = shard_groups(*model_, parameters, sharding.blocks);
      units = members_by_type(groups, parameters);
    } else {
      units.members = layout_of(plan_buckets(specs_of(parameters), options_.reducer.limits));
      std::reverse(units.members.begin(), units.members.end());  // into the order of forward
    }
  });
  const std::vector<Unit> plan = plan_units(specs_of(parameters), units.members, collectives_->world_size());
  store_ = std::make_unique<ParameterStore>(parameters, world_, *collectives_, plan, sharding);
  if (sharding.stage == 1) {
    const bool is_one_place =
        collectives_->local_size() == 1 || collectives_->local_size() == collectives_->world_size();
    slices_fit_ = is_one_place && store_->as_tensors() == nullptr;
    return;
  }
  shards_ = std::make_unique<ShardReducer>(parameters, plan, *collectives_, [this](std::size_t unit) {
    if (gathering_) store_->shards()->release(unit);
  });
  if (sharding.stage == 3) {
    gathering_ = std::make_unique<BlockGathering>(*store_->shards(), groups, units.group_of);
  }
}

void DistributedDataParallel::require_shardable(const std::vector<NamedParameter>& parameters) const {
  const std::string stage = "strategy.stage=" + std::to_string(options_.sharding.stage);
  if (options_.lanes > 0) throw ConfigError(stage + ": sums by lanes need whole gradients; set train.lanes=0");
  if (options_.comm_hook && options_.sharding.stage > 1) {
    throw ConfigError(stage + ": gradients travel as they are; set ddp.comm_hook=none, or strategy.stage=1");
  }
  for (const NamedParameter& parameter : parameters) {
    const bool has_own_type =
        parameter.tensor.grad_dtype().value_or(parameter.tensor.scalar_type()) == parameter.tensor.scalar_type();
    if (has_own_type && !parameter.is_sparse) continue;
    throw ConfigError(stage + ": the gradient of '" + parameter.name +
                      "' must be dense and of the parameter's type; use strategy.name=ddp");
  }
}

void DistributedDataParallel::require_lanes(const std::vector<NamedParameter>& parameters) const {
  if (options_.lanes < collectives_->world_size()) {
    throw ConfigError("ddp: " + std::to_string(options_.lanes) + " lanes do not give " +
                      std::to_string(collectives_->world_size()) + " ranks one each");
  }
  if (!device_.is_cpu()) throw ConfigError("ddp: sums by lanes are made on the CPU");
  if (options_.comm_hook) {
    throw ConfigError("ddp: with lanes, gradients travel as they are; set ddp.comm_hook=none");
  }
  for (const NamedParameter& parameter : parameters) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    const bool is_plain = parameter.tensor.grad_dtype().value_or(type) == type && !parameter.is_sparse;
    if (is_plain && (type == at::kFloat || type == at::kDouble)) continue;
    throw ConfigError("ddp: with lanes, gradients must be dense float32 or float64 like their parameters; '" +
                      parameter.name + "' has others");
  }
}

void DistributedDataParallel::choose_hook() {
  ChosenHook chosen;
  world_.together([&] { chosen = options_.comm_hook(*collectives_); });
  hook_memory_ = std::move(chosen.memory);
  reducer_->set_comm_hook(std::move(chosen.hook), chosen.is_silent);
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
  return std::optional<models::ScopedTap>(std::in_place,
                                          [this](models::Block& block, const at::Tensor& input, const auto& next) {
                                            return gathering_->run(block, input, next);
                                          });
}

void DistributedDataParallel::prepare_gradients() {
  if (lanes_) return lanes_->begin_lane(may_slice_ && slices_fit_);
  if (before_forward_) before_forward_();
  if (synchronises_) synchronise_before_forward();
  if (shards_) return shards_->prepare();
  const bool is_sliced = may_slice_ && slices_fit_ && !before_forward_ && reducer_->supports_slices();
  reducer_->prepare(!synchronises_ ? Synchronisation::none
                    : is_sliced    ? Synchronisation::sliced
                                   : Synchronisation::whole);
}

/// Brings buffers to where all ranks have them alike, if that was asked for.
void DistributedDataParallel::synchronise_before_forward() {
  if (collectives_->world_size() == 1 || options_.buffers == BufferMode::off) return;
  const StepRecorder::Meeting meeting(recorder_.get());
  if (options_.buffers == BufferMode::broadcast) broadcast_buffers(buffer_root_);
  if (options_.buffers == BufferMode::average) synchronise_buffers();
}

bool DistributedDataParallel::is_watching() const {
  return reducer_ && at::GradMode::is_enabled() && (options_.reducer.finds_unused || options_.reducer.has_static_graph);
}

at::Tensor DistributedDataParallel::forward(const at::Tensor& input, const models::NamedTensors& more) {
  const auto placed = [this](const at::Tensor& tensor) {
    const at::ScalarType type = tensor.is_floating_point() ? dtype_ : tensor.scalar_type();
    return tensor.to(device_, type, /*non_blocking=*/true);
  };
  const at::Tensor here = placed(input);
  models::NamedTensors more_here;
  for (const auto& [name, tensor] : more) more_here.emplace(name, placed(tensor));
  std::optional<models::ScopedTap> scoped;
  if (tap_ && at::GradMode::is_enabled()) scoped.emplace(*tap_);
  return run([&] { return models::run_all(*model_, here, more_here); });
}

StepResult DistributedDataParallel::train_step(const data::Batch& batch, optim::OptimWrapper& optimizer,
                                               std::optional<double> weight, const StepObserver& observer) {
  const MicroBatch frame = micro_batch(optimizer, observer.reads_gradients);
  const double share = weight ? *weight : share_of(batch, optimizer);
  const at::Tensor target = on_device(batch.target);
  models::ParsedLosses losses;
  {
    const OptimContext context = optim_context(optimizer);
    const at::Tensor output = forward(batch.input, batch.more);
    if (observer.on_forward) observer.on_forward(output, target);
    losses = models::parse_losses(model_->losses(output, target));
    if (observer.on_loss) observer.on_loss(losses);
  }
  name_anomalous(losses.total);
  StepResult result;
  result.update = optimizer.update_params(losses.total, share, [&] {
    if (observer.reads_gradients) store_->finish_gradients();
    if (observer.on_backward) observer.on_backward();
  });
  result.values = models::host_values(losses);  // last: on a GPU the host waits here
  result.loss = result.values.front().second;
  result.values.erase(result.values.begin());
  return result;
}

DistributedDataParallel::MicroBatch::MicroBatch(DistributedDataParallel& wrapper, const optim::OptimWrapper& optimizer,
                                                bool reads_gradients)
    : wrapper_(&wrapper), completes_step_(optimizer.completes_step()), exceptions_(std::uncaught_exceptions()) {
  if (wrapper.recorder_) wrapper.recorder_->micro_batch_begins();
  wrapper.may_slice_ = !reads_gradients;
}

DistributedDataParallel::MicroBatch::~MicroBatch() {
  wrapper_->may_slice_ = false;
  const bool has_failed = std::uncaught_exceptions() > exceptions_;
  if (wrapper_->recorder_ && !has_failed) wrapper_->recorder_->micro_batch_ends(completes_step_);
}

at::Tensor DistributedDataParallel::on_device(const at::Tensor& tensor) const {
  return tensor.defined() ? tensor.to(device_, tensor.scalar_type(), /*non_blocking=*/true) : tensor;
}

DistributedDataParallel::OptimContext::OptimContext(DistributedDataParallel& wrapper, bool completes_step) {
  if (!completes_step) only_accumulates_.emplace(wrapper);
  if (wrapper.options_.autocast) casts_.emplace(wrapper.device_.type(), *wrapper.options_.autocast);
}

void DistributedDataParallel::name_anomalous(const at::Tensor& loss) {
  if (options_.anomaly_check == AnomalyCheck::off) return;
  if (options_.anomaly_check == AnomalyCheck::once && std::exchange(has_named_anomalous_, true)) return;
  std::vector<NamedParameter> trained;
  for (std::size_t i = 0; i < store_->size(); ++i) trained.push_back(store_->parameter(i));
  std::string names;
  for (const std::string& name : anomalous_parameters(loss, trained)) names += (names.empty() ? "" : ", ") + name;
  if (!names.empty()) log::warning("outside of the loss's graph, so never trained: " + names);
}

/// The part of a micro_batch in the step's average when the caller does not say it.
double DistributedDataParallel::share_of(const data::Batch& batch, const optim::OptimWrapper& optimizer) {
  if (lanes_) return 1;  // all lanes weigh the same
  const double part = 1.0 / static_cast<double>(optimizer.micro_batches_in_step());
  if (!options_.weighs_samples) return part;
  const auto mine = static_cast<double>(batch.input.size(0));
  double all = mine;
  collectives_->all_reduce(&all, 1, DType::float64, mpi::ReduceOp::sum);
  return part * mine * collectives_->world_size() / all;
}

metrics::ClassificationSums DistributedDataParallel::val_step(const data::Batch& batch, const StepObserver& observer) {
  const torch::NoGradGuard no_grad;
  const OptimContext context(*this, /*completes_step=*/true);
  const at::Tensor output = forward(batch.input, batch.more);
  const at::Tensor target = on_device(batch.target);
  if (observer.on_forward) observer.on_forward(output, target);
  const models::ParsedLosses losses = models::parse_losses(model_->losses(output, target));
  if (observer.on_loss) observer.on_loss(losses);
  return metrics::classification_sums(output, target, losses.total);
}

models::Predictions DistributedDataParallel::test_step(const data::Batch& batch) {
  const torch::NoGradGuard no_grad;
  const OptimContext context(*this, /*completes_step=*/true);
  return model_->predict(forward(batch.input, batch.more));
}

std::vector<at::Tensor> DistributedDataParallel::buffers() const {
  std::vector<at::Tensor> buffers;
  for (const auto& item : model_->named_buffers()) {
    if (std::find(options_.ignored.begin(), options_.ignored.end(), item.key()) == options_.ignored.end()) {
      buffers.push_back(item.value());
    }
  }
  return buffers;
}

void DistributedDataParallel::broadcast_buffers(int root) {
  for (const at::Tensor& buffer : buffers()) broadcast(buffer, *collectives_, root);
}

void DistributedDataParallel::synchronise_buffers() {
  if (collectives_->world_size() == 1 || lanes_) return;  // lanes keep them the same anyway
  for (const at::Tensor& buffer : buffers()) {
    if (at::isFloatingType(buffer.scalar_type())) {
      all_reduce(buffer, *collectives_, mpi::ReduceOp::average);
    } else {
      broadcast(buffer, *collectives_, 0);
    }
  }
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
  broadcast_buffers(root);
}

DdpReport DistributedDataParallel::report() const {
  if (recorder_) return recorder_->report(world_);
  return {.steps = 0, .ranks = std::vector<StepTimeline>(static_cast<std::size_t>(world_.size()))};
}

void DistributedDataParallel::reset_state() {
  if (recorder_) recorder_->drop_step();
  if (lanes_) lanes_->reset();
  if (reducer_) reducer_->reset();
  if (shards_) shards_->reset();
  if (gathering_) store_->shards()->release_all();
  store_->drop_gradients();
}

}  // namespace lockstep::parallel
