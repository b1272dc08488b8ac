// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/captured_step.hpp"

#include <lockstep/log/log.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <exception>
#include <utility>

#include "mpi/step_graph.hpp"
#include "optim/live_numbers.hpp"

namespace lockstep::engine {

namespace {

/// Buckets get their final layout in the second step, and libraries choose their kernels in the first ones.
constexpr std::int64_t kEagerSteps = 3;
/// A run whose steps change more often is not static.
constexpr std::int64_t kMaxRecordings = 10;

/// The tensors of a batch, in order.
std::vector<at::Tensor> tensors_of(batch::Batch& batch) {
  std::vector<at::Tensor> tensors;
  batch.change_each([&](const std::string& key, batch::Value&) {
    batch.change(key, [&](at::Tensor& tensor) { tensors.push_back(tensor); });
  });
  return tensors;
}

std::vector<at::Tensor> tensors_of(const batch::Batch& batch) {
  batch::Batch shared = batch.share();
  return tensors_of(shared);
}

/// The name of a value that a graph cannot read; empty = none.
std::string unreadable_value(const batch::Batch& batch, at::Device device) {
  for (const auto& [name, value] : batch.values()) {
    if (!value.is<at::Tensor>() || value.as<at::Tensor>().device() != device) return name;
  }
  return "";
}

bool is_alike(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() && one.strides() == other.strides() && one.scalar_type() == other.scalar_type();
}

}  // namespace

/// A step that was recorded, with the memory that it reads and writes.
struct CapturedStep::Recording {
  Recording(std::shared_ptr<const mpi::Gpu> gpu, mpi::Collectives& collectives, at::Device device)
      : live(device), graph(std::move(gpu), collectives) {}

  batch::Batch inputs;
  batch::Outputs outputs;
  models::LossWeights weights;  // those of the step at hand
  models::ParsedLosses losses;
  std::vector<std::uintptr_t> fingerprint;
  optim::LiveNumbers live;
  mpi::StepGraph graph;
};

CaptureFacts capture_facts(const Run& run, bool reads_gradients) {
  const parallel::DdpOptions& options = run.view.wrapper.options();
  const BatchLayout& layout = run.data.layout();
  return {.is_on_gpu = run.strategy.gpu() != nullptr,
          .has_one_micro_batch = run.view.world.agree(layout.micro_batches == 1),
          .has_lanes = layout.lanes > 0,
          .uses_closure = run.view.optimizer.uses_closure(),
          .has_parts = run.strategy.has_parts(),
          .has_captured_form = run.captured_losses.has_value(),
          .is_sharded = options.sharding.stage > 0,
          .has_comm_hook = static_cast<bool>(options.comm_hook),
          .finds_unused = options.reducer.finds_unused,
          .synchronizes_norm = options.synchronizes_batch_norm,
          .recomputes = !options.recompute.empty(),
          .reads_gradients = reads_gradients,
          .times_sections = run.perf != nullptr,
          .reports_times = options.reports_times,
          .checks_writes = options.checks_writes};
}

CapturedStep::CapturedStep(Run& run, bool reads_gradients, bool reads_late,
                           std::function<void(StepEvent, const LastBatch&)> notify)
    : run_(&run), reads_late_(reads_late), notify_(std::move(notify)) {
  const std::string reason = reason_against_capture(capture_facts(run, reads_gradients));
  if (!reason.empty()) {
    give_up(reason);
    return;
  }
  watched_ = run.view.wrapper.model().parameters();
  for (const at::Tensor& buffer : run.view.wrapper.model().buffers()) watched_.push_back(buffer);
}

CapturedStep::~CapturedStep() { drop_recording(); }

/// Its last launch may still be under way and use its memory.
void CapturedStep::drop_recording() noexcept {
  const at::Device device = run_->view.device;
  try {
    if (recording_ && !device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
  } catch (const std::exception& error) {
    log::warning(std::string("run.compile: the last launch failed: ") + error.what());
  }
  recording_.reset();
}

void CapturedStep::give_up(const std::string& reason) {
  drop_recording();
  reason_ = reason;
  log::info("run.compile: steps are not captured, because " + reason);
}

std::vector<std::uintptr_t> CapturedStep::fingerprint() const {
  std::vector<std::uintptr_t> values = {run_->view.wrapper.model().is_training() ? std::uintptr_t{1} : 0};
  for (const at::Tensor& tensor : watched_) {
    values.push_back(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()));
    values.push_back(tensor.requires_grad() ? 1 : 0);
  }
  return values;
}

bool CapturedStep::fits(const batch::Batch& prepared, const models::LossWeights& weights) const {
  if (!recording_ || recording_->fingerprint != fingerprint()) return false;
  if (recording_->weights.by_name.size() != weights.by_name.size()) return false;
  const std::vector<at::Tensor> recorded = tensors_of(std::as_const(recording_->inputs));
  const std::vector<at::Tensor> given = tensors_of(prepared);
  if (recorded.size() != given.size()) return false;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_alike(recorded[i], given[i])) return false;
  }
  return true;
}

/// Whether enough eager steps came before a recording. Counts one.
bool CapturedStep::is_warm() {
  if (eager_steps_ >= kEagerSteps) return true;
  ++eager_steps_;
  return false;
}

std::optional<parallel::StepResult> CapturedStep::run(const batch::Batch& batch, const models::LossWeights& weights) {
  if (!reason_.empty()) return std::nullopt;
  if (weights.count_nothing) return std::nullopt;  // perhaps without an update; equal on all ranks
  if (!recording_ && !is_warm()) return std::nullopt;
  const batch::Batch prepared = run_->view.wrapper.prepare(batch, /*is_training=*/true);
  const mpi::Communicator& world = run_->view.world;
  if (recording_ && !world.agree(fits(prepared, weights))) {
    if (!is_warm()) return std::nullopt;
    drop_recording();  // these steps stay as they are
  }
  if (recording_ && !renew(prepared, weights)) drop_recording();
  if (!recording_ && !record(prepared, weights)) return std::nullopt;
  eager_steps_ = 0;
  recording_->graph.launch();
  return finish(batch, weights);
}

/// Brings what the recorded step reads. False: it has to be recorded again.
bool CapturedStep::renew(const batch::Batch& prepared, const models::LossWeights& weights) {
  const torch::NoGradGuard no_grad;
  optim::OptimWrapper& optimizer = run_->view.optimizer;
  recording_->weights.by_name = weights.by_name;
  optimizer.count_recorded_update(weights.of_total());
  if (!recording_->live.refresh()) {
    optimizer.uncount_recorded_update();
    return false;
  }
  const std::vector<at::Tensor> target = tensors_of(std::as_const(recording_->inputs));
  const std::vector<at::Tensor> from = tensors_of(prepared);
  for (std::size_t i = 0; i < target.size(); ++i) target[i].copy_(from[i], /*non_blocking=*/true);
  return true;
}

/// False: it could not be recorded, on any rank.
bool CapturedStep::record(const batch::Batch& prepared, const models::LossWeights& weights) {
  RunView& view = run_->view;
  std::string reason;
  if (++recordings_ > kMaxRecordings) {
    reason = "they changed more than " + std::to_string(kMaxRecordings) + " times";
  } else if (const std::string value = unreadable_value(prepared, view.device); !value.empty()) {
    reason = "'" + value + "' of the batch is not a tensor on the device";
  } else {
    view.wrapper.check_last_step();
    view.optimizer.settle();
    recording_ = std::make_unique<Recording>(run_->strategy.gpu(), view.collectives, view.device);
    recording_->fingerprint = fingerprint();
    recording_->weights = weights;
    recording_->inputs = prepared.share();
    recording_->inputs.change_each([&](const std::string& key, batch::Value&) {
      recording_->inputs.change(key, [](at::Tensor& tensor) { tensor = tensor.clone(); });
    });
  }
  if (view.world.agree(reason.empty())) {
    reason = recording_->graph.record([&] {
      const auto frame = view.wrapper.micro_batch(view.optimizer);
      run_recorded_work();
      view.optimizer.record_update(recording_->losses.total, weights.of_total(), recording_->live);
    });
    at::Tensor& loss = recording_->losses.total;
    if (loss.defined()) loss = loss.detach();  // drops the autograd graph
    if (view.world.agree(reason.empty())) return recording_->live.refresh();
    view.optimizer.uncount_recorded_update();
    view.wrapper.reset_state(parallel::GivenUp::recording);
  }
  for (const std::string& each : view.world.all_gather(reason)) {
    if (reason.empty()) reason = each;
  }
  give_up(reason);
  return false;
}

/// Forward and losses, as in an eager step.
void CapturedStep::run_recorded_work() {
  parallel::DistributedDataParallel& wrapper = run_->view.wrapper;
  const auto context = wrapper.optim_context(run_->view.optimizer);
  Recording& target = *recording_;
  for (std::size_t i = 0; i < target.weights.by_name.size(); ++i) {
    target.weights.live.push_back(target.live.number([&target, i] { return target.weights.by_name[i].second; }));
  }
  const batch::Outputs outputs = wrapper.forward(target.inputs);
  target.losses = models::parse_losses(models::losses_of(wrapper.model(), outputs, target.inputs),
                                       *run_->captured_losses, target.weights);
  target.outputs = outputs.detached();
}

parallel::StepResult CapturedStep::finish(const batch::Batch& batch, const models::LossWeights& weights) {
  RunView& view = run_->view;
  LastBatch last{.given = &batch, .batch = &recording_->inputs, .model = &view.wrapper.model()};
  if (view.optimizer.scaler() != nullptr) last.loss_scale = view.optimizer.scaler()->scale();
  last.outputs = recording_->outputs;
  {
    const auto context = view.wrapper.optim_context(view.optimizer);
    notify_(StepEvent::forward, last);
    last.losses = recording_->losses.values;
    notify_(StepEvent::loss, last);
  }
  notify_(StepEvent::backward, last);
  parallel::StepResult result;
  result.update = view.optimizer.read_recorded_update();
  notify_(StepEvent::update, last);
  view.wrapper.read_losses(result, recording_->losses, weights, reads_late_);  // the next launch replaces them
  return result;
}

}  // namespace lockstep::engine
