// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <torch/types.h>

#include <exception>
#include <span>
#include <stdexcept>
#include <utility>

#include "batch/byte_values.hpp"
#include "batch/late_values.hpp"
#include "batch/nvtx_range.hpp"
#include "core/text/text.hpp"
#include "parallel/reducers/autograd_graph.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/transfers.hpp"

namespace lockstep::parallel {

template <>
struct OutputTraits<StepLosses> {
  template <class Visit>
  static void visit(StepLosses& value, const Visit& visit) {
    for (auto& [name, term] : value.losses) visit_tensors(term.parts, visit);
    visit_tensors(value.outputs, visit);
  }
};

batch::Batch DistributedDataParallel::prepare(const batch::Batch& batch, bool is_training) const {
  require_usable(/*has_losses=*/false);
  batch::Batch placed = copies_->copy(batch);
  const torch::NoGradGuard no_grad;
  const auto format =
      model_->family().prefers_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  batch::Batch prepared = model_->preprocess(batch::with_values(std::move(placed), format), is_training);
  for (std::size_t i = 0; i < prepared.roles().inputs.size(); ++i) {
    const std::string& key = prepared.input_key(i);
    if (!prepared.has(key)) continue;  // the model says so when it requests it
    prepared.change(key, [this](at::Tensor& tensor) {
      if (tensor.is_floating_point()) tensor = tensor.to(device_, dtype_, /*non_blocking=*/true);
    });
  }
  return prepared;
}

batch::Outputs DistributedDataParallel::forward(const batch::Batch& prepared) {
  const batch::NvtxRange range("forward");
  return run([&] { return models::run(*model_, prepared); });
}

at::Tensor DistributedDataParallel::forward(const at::Tensor& input) {
  require_usable(/*has_losses=*/false);
  const at::ScalarType type = input.is_floating_point() ? dtype_ : input.scalar_type();
  const at::Tensor here = input.to(device_, type, /*non_blocking=*/true);
  const batch::NvtxRange range("forward");
  return run([&] { return models::run(*model_, here); });
}

StepResult DistributedDataParallel::train_step(const batch::Batch& batch, optim::BaseOptimWrapper& optimizer,
                                               const std::optional<models::LossWeights>& weights,
                                               const StepOptions& options, StepObserver* observer) {
  require_usable(/*has_losses=*/true);
  if (options.requires_training_mode && !model_->is_training()) {
    throw std::logic_error("the model is in evaluation mode in a training step: after eval(), call train()");
  }
  if (options.reduces_manually) prepare_manual_reduction(optimizer);
  StepObserver nobody;
  StepObserver& events = observer != nullptr ? *observer : nobody;
  const MicroBatch frame = micro_batch(optimizer, events.reads_gradients || options.reduces_manually);
  const models::LossWeights share = weights ? *weights : share_of(batch, optimizer);
  const batch::Batch prepared = prepare(batch, /*is_training=*/true);
  const TrainedBatch trained = train_prepared(prepared, optimizer, share, options, events);
  StepResult result{.update = trained.update};
  read_losses(result, trained.losses, share, events.reads_late);
  return result;
}

TrainedBatch DistributedDataParallel::train_prepared(const batch::Batch& prepared, optim::BaseOptimWrapper& optimizer,
                                                     const models::LossWeights& weights, const StepOptions& options,
                                                     StepObserver& observer) {
  TrainedBatch trained;
  {
    std::optional<NoSync> only_accumulates;
    if (options.reduces_manually) {
      only_accumulates.emplace(*this);
      if (optimizer.completes_step()) manual_sync_parameters(*this);
    }
    const OptimContext context = optim_context(optimizer);
    observer.on_prepared(prepared);
    trained.losses = compute_losses(prepared, weights, options, observer);
    observer.on_loss(trained.losses);
  }
  name_anomalous(trained.losses.total);
  if (trained.losses.is_void) optimizer.skip_update();
  trained.update = optimizer.update_params(trained.losses.total, weights.of_total(), [&] {
    if (options.reduces_manually) manual_reducer_->all_reduce();
    if (observer.reads_gradients) store_->finish_gradients();
    observer.on_backward();
  });
  observer.on_update();
  return trained;
}

models::ParsedLosses DistributedDataParallel::compute_losses(const batch::Batch& prepared,
                                                             const models::LossWeights& weights,
                                                             const StepOptions& options, StepObserver& observer) {
  if (options.losses) {
    const StepLosses given = run([&] { return options.losses(*model_, prepared); });
    observer.on_forward(given.outputs);
    return models::parse_losses(given.losses, options.sum, weights);
  }
  const batch::Outputs outputs = forward(prepared);
  observer.on_forward(outputs);
  return models::parse_losses(models::losses_of(*model_, outputs, prepared), options.sum, weights);
}

void DistributedDataParallel::prepare_manual_reduction(const optim::BaseOptimWrapper& optimizer) {
  if (manual_reducer_) return;
  const bool has_whole_gradients = collectives_->world_size() == 1 || has_buckets();
  if (!has_whole_gradients || optimizer.uses_closure()) {
    throw ConfigError("train.manual_reduction requires whole gradients; set train.lanes=0 and strategy.name=ddp");
  }
  manual_reducer_ = std::make_unique<ManualReducer>(*model_, *collectives_);
}

/// The host may wait for a GPU here.
void DistributedDataParallel::read_losses(StepResult& result, const models::ParsedLosses& losses,
                                          const models::LossWeights& weights, bool is_late) {
  is_late ? result.queue(losses, weights, *late_places_) : result.read(losses, weights);
}

void StepResult::read(const models::ParsedLosses& losses, const models::LossWeights& weights) {
  values = models::host_values(losses);
  loss = values.front().second;
  is_void = losses.is_void;
  values.erase(values.begin());
  weighted = weights.by_name.empty() ? loss * weights.usual : losses.total.item<double>();
}

void StepResult::queue(const models::ParsedLosses& losses, const models::LossWeights& weights,
                       batch::LatePlaces& places) {
  const auto options = losses.total.options().dtype(at::kDouble).requires_grad(false);
  std::vector<at::Tensor> numbers;
  for (const auto& [name, value] : losses.values) {
    numbers.push_back(value.to(options));
    values.emplace_back(name, 0);
  }
  values.erase(values.begin());  // "loss"
  if (!weights.by_name.empty()) numbers.push_back(losses.total.detach().to(options));
  is_void = losses.is_void;
  late = Late{.numbers = places.queue(at::stack(numbers)), .weight = weights.usual};
}

void StepResult::finish() {
  if (!late) return;
  const at::Tensor numbers = late->numbers->take();
  const std::span<const double> here(numbers.const_data_ptr<double>(), static_cast<std::size_t>(numbers.numel()));
  const bool has_total = here.size() == values.size() + 2;
  loss = here[0];
  for (std::size_t i = 0; i < values.size(); ++i) values[i].second = here[1 + i];
  weighted = has_total ? here.back() : loss * late->weight;
  late.reset();
}

DistributedDataParallel::MicroBatch::MicroBatch(DistributedDataParallel& wrapper,
                                                const optim::BaseOptimWrapper& optimizer, bool reads_gradients)
    : wrapper_(&wrapper), completes_step_(optimizer.completes_step()), exceptions_(std::uncaught_exceptions()) {
  if (wrapper.recorder_) wrapper.recorder_->micro_batch_begins();
  wrapper.may_slice_ = !reads_gradients;
}

DistributedDataParallel::MicroBatch::~MicroBatch() {
  wrapper_->may_slice_ = false;
  const bool has_failed = std::uncaught_exceptions() > exceptions_;
  if (wrapper_->recorder_ && !has_failed) wrapper_->recorder_->micro_batch_ends(completes_step_);
}

DistributedDataParallel::OptimContext::OptimContext(DistributedDataParallel& wrapper, bool completes_step,
                                                    const optim::FlatParameters* trained)
    : wrapper_(&wrapper), part_before_(wrapper.active_part_) {
  if (!completes_step) only_accumulates_.emplace(wrapper);
  if (wrapper.options_.autocast) casts_.emplace(wrapper.device_.type(), *wrapper.options_.autocast);
  const auto* const part = dynamic_cast<const PartParameters*>(trained);
  if (part == nullptr) return;
  wrapper.active_part_ = part->part();
  for (std::size_t i = 0; i < wrapper.store_->size(); ++i) {
    const NamedParameter& parameter = wrapper.store_->parameter(i);
    if (parameter.part == part->part() || !parameter.tensor.requires_grad()) continue;
    resting_.push_back(parameter.tensor);
    resting_.back().set_requires_grad(false);
  }
}

DistributedDataParallel::OptimContext::~OptimContext() {
  for (const at::Tensor& parameter : resting_) parameter.set_requires_grad(true);
  wrapper_->active_part_ = part_before_;
}

void DistributedDataParallel::name_anomalous(const at::Tensor& loss) {
  if (options_.anomaly_check == AnomalyCheck::off) return;
  if (options_.anomaly_check == AnomalyCheck::once && std::exchange(has_named_anomalous_, true)) return;
  std::vector<NamedParameter> trained;
  for (std::size_t i = 0; i < store_->size(); ++i) trained.push_back(store_->parameter(i));
  const std::string names = joined(anomalous_parameters({loss}, trained));
  if (!names.empty())
    log::warning("these parameters are not part of the graph of the loss and are never trained: " + names);
}

/// The part of a micro_batch in the step's average when the caller does not say it.
double DistributedDataParallel::share_of(const batch::Batch& batch, const optim::BaseOptimWrapper& optimizer) {
  if (reducer_->averages_lanes()) return 1;
  const double part = 1.0 / static_cast<double>(optimizer.micro_batches_in_step());
  if (!options_.weighs_samples) return part;
  const auto mine = static_cast<double>(batch.size());
  double all = mine;
  collectives_->all_reduce(&all, 1, DType::float64, mpi::ReduceOp::sum);
  return part * mine * collectives_->world_size() / all;
}

ValidationResult DistributedDataParallel::val_step(const batch::Batch& batch, StepObserver* observer) {
  require_usable(/*has_losses=*/true);
  StepObserver nobody;
  StepObserver& events = observer != nullptr ? *observer : nobody;
  const torch::NoGradGuard no_grad;
  ValidationResult result{.batch = prepare(batch, /*is_training=*/false), .outputs = {}, .losses = {}};
  const OptimContext context(*this, /*completes_step=*/true);
  events.on_prepared(result.batch);
  result.outputs = forward(result.batch);
  events.on_forward(result.outputs);
  result.losses = models::parse_losses(models::losses_of(*model_, result.outputs, result.batch));
  events.on_loss(result.losses);
  return result;
}

models::Predictions DistributedDataParallel::test_step(const batch::Batch& batch) {
  const torch::NoGradGuard no_grad;
  const batch::Batch prepared = prepare(batch, /*is_training=*/false);
  const OptimContext context(*this, /*completes_step=*/true);
  return model_->predictions_of(forward(prepared), prepared);
}

}  // namespace lockstep::parallel
