// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loop/captured_step.hpp"

#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "engine/steps/micro_batch_events.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "optim/update/live_numbers.hpp"

namespace lockstep::engine {

namespace {

struct CaptureReason {
  bool (*applies)(const CaptureFacts& facts);
  const char* text;
};

/// The first one that applies is stated.
constexpr std::array<CaptureReason, 12> kReasons = {{
    {[](const CaptureFacts& facts) { return !facts.is_on_gpu; }, "CUDA graphs require a GPU (run.device)"},
    {[](const CaptureFacts& facts) { return facts.has_lanes; }, "lanes (train.lanes) are summed on the CPU"},
    {[](const CaptureFacts& facts) { return facts.uses_closure; },
     "the optimizer (optim.name) evaluates the loss several times in a step and decides on the CPU how often"},
    {[](const CaptureFacts& facts) { return facts.has_parts; },
     "several optimizers (optim.part, strategy.separate) update the parameters"},
    {[](const CaptureFacts& facts) { return !facts.has_captured_form; },
     "the action of a step (train.step_kind) is not model, simple or amp"},
    {[](const CaptureFacts& facts) { return facts.is_sharded; },
     "the training state is divided among the ranks (strategy.name=sharded)"},
    {[](const CaptureFacts& facts) { return !facts.has_fixed_hook_work; },
     "the communication hook (ddp.comm_hook) decides on the CPU what it sends; of the built-in hooks, only powersgd "
     "without ddp.powersgd_warm_start does"},
    {[](const CaptureFacts& facts) { return facts.finds_unused; },
     "the graph of each step is searched for unused parameters (ddp.find_unused_parameters)"},
    {[](const CaptureFacts& facts) { return facts.reads_gradients; },
     "a hook reads the gradients between backward and update (train.hooks)"},
    {[](const CaptureFacts& facts) { return facts.times_sections; },
     "the sections of each step are timed (log.sections)"},
    {[](const CaptureFacts& facts) { return facts.reports_times; },
     "the communication of each step is timed (ddp.report)"},
    {[](const CaptureFacts& facts) { return facts.checks_writes; },
     "writes to parameters are checked (ddp.check_writes)"},
}};

/// Buckets get their final layout in the second step, and libraries choose their kernels in the first ones.
constexpr std::int64_t kEagerSteps = 3;
/// A run whose steps change more often is not static.
constexpr std::int64_t kMaxRecordings = 10;

/// The tensors of a batch, in order.
std::vector<at::Tensor> tensors_of(const batch::Batch& batch) {
  batch::Batch shared = batch.share();
  std::vector<at::Tensor> tensors;
  for (const auto& [key, value] : batch.values()) {
    shared.change(key, [&tensors](at::Tensor& tensor) { tensors.push_back(tensor); });
  }
  return tensors;
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

bool are_alike(const batch::Batch& one, const batch::Batch& other) {
  const std::vector<at::Tensor> of_one = tensors_of(one);
  const std::vector<at::Tensor> of_other = tensors_of(other);
  return std::equal(of_one.begin(), of_one.end(), of_other.begin(), of_other.end(), is_alike);
}

batch::Batch cloned(const batch::Batch& batch) {
  batch::Batch copy = batch.share();
  for (const auto& [key, value] : batch.values()) copy.change(key, [](at::Tensor& tensor) { tensor = tensor.clone(); });
  return copy;
}

void copy_values(const batch::Batch& target, const batch::Batch& from) {
  const torch::NoGradGuard no_grad;
  const std::vector<at::Tensor> targets = tensors_of(target);
  const std::vector<at::Tensor> sources = tensors_of(from);
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i], /*non_blocking=*/true);
}

/// Everything that the settings and hooks of a run mean for the capture of its steps.
CaptureFacts capture_facts(const Run& run, bool reads_gradients) {
  const parallel::DistributedDataParallel& wrapper = run.view.wrapper;
  const parallel::DdpOptions& options = wrapper.options();
  return {.is_on_gpu = run.resources.gpu != nullptr,
          .has_lanes = run.data.layout().lanes > 0,
          .uses_closure = run.view.optimizer.uses_closure(),
          .has_parts = run.updates.has_parts,
          .has_captured_form = run.step.captured.has_value(),
          .is_sharded = options.sharding.stage > 0,
          .has_fixed_hook_work = run.view.world.size() == 1 || wrapper.has_recordable_hook(),
          .finds_unused = options.reducer.finds_unused,
          .reads_gradients = reads_gradients,
          .times_sections = run.perf != nullptr,
          .reports_times = options.reports_times,
          .checks_writes = options.checks_writes};
}

}  // namespace

/// A micro-batch that was recorded, with the memory that its work reads and writes.
struct CapturedStep::Recording {
  /// @param beside  of the same step; null = it is the first one
  Recording(std::shared_ptr<const mpi::Gpu> gpu, mpi::Collectives& collectives, at::Device device,
            const Recording* beside)
      : live(device), graph(std::move(gpu), collectives, beside != nullptr ? &beside->graph : nullptr) {}

  bool is_first = true;  ///< micro-batch of its step: there are no gradients yet
  bool is_last = true;   ///< it completes the step
  batch::Batch inputs;
  batch::Outputs outputs;
  models::LossWeights weights;  // those of the micro-batch at hand
  models::ParsedLosses losses;
  optim::LiveNumbers live;
  mpi::StepGraph graph;
};

/// The optimizer of a micro-batch that is recorded: the work of update_params is recorded, too. It keeps the outputs
/// for hooks, which are notified after the launch.
class CapturedStep::RecordingOptimizer final : public optim::BaseOptimWrapper, public parallel::StepObserver {
 public:
  RecordingOptimizer(optim::OptimWrapper& optimizer, Recording& target) : optimizer_(&optimizer), target_(&target) {}

  bool completes_step() const noexcept override { return target_->is_last; }
  std::int64_t micro_batches_in_step() const override { return optimizer_->micro_batches_in_step(); }
  optim::UpdateReport update_params(const at::Tensor& loss, std::optional<double> /*weight*/,
                                    const std::function<void()>& /*before_update*/) override {
    Recording* const target = target_;
    optimizer_->record_backward(
        loss, [target] { return target->weights.of_total(); }, target->live);
    if (target->is_last) optimizer_->record_update(target->live);
    return {};
  }
  void skip_update() noexcept override {}  // steps that may be void are not captured
  bool uses_closure() const noexcept override { return false; }
  const optim::GradScaler* scaler() const noexcept override { return optimizer_->scaler(); }
  const optim::FlatParameters* own_parameters() const noexcept override { return optimizer_->own_parameters(); }

  void on_forward(const batch::Outputs& outputs) override { target_->outputs = outputs.detached(); }

 private:
  optim::OptimWrapper* optimizer_;
  Recording* target_;
};

std::string reason_against_capture(const CaptureFacts& facts) {
  const auto found = std::ranges::find_if(kReasons, [&](const CaptureReason& reason) { return reason.applies(facts); });
  return found == kReasons.end() ? "" : found->text;
}

CapturedStep::CapturedStep(Run& run, bool reads_gradients, bool reads_late,
                           std::function<void(StepEvent, const LastBatch&)> notify,
                           std::function<void(std::int64_t part)> seed)
    : run_(&run), reads_late_(reads_late), notify_(std::move(notify)), seed_(std::move(seed)) {
  const std::string reason = reason_against_capture(capture_facts(run, reads_gradients));
  if (!reason.empty()) {
    give_up(reason);
    return;
  }
  watched_ = run.view.wrapper.model().parameters();
  for (const at::Tensor& buffer : run.view.wrapper.model().buffers()) watched_.push_back(buffer);
  if (run.view.world.size() > 1) hook_memory_ = run.view.wrapper.hook_memory();  // one rank does not call the hook
}

// CUDA frees a graph that is in flight when it is complete (cuGraphExecDestroy), and LibTorch gives the memory of its
// tensors to later work of the same stream.
CapturedStep::~CapturedStep() = default;

void CapturedStep::give_up(const std::string& reason) {
  recordings_.clear();
  reason_ = reason;
  log::info("run.cuda_graphs: steps are not captured, because " + reason);
}

std::vector<std::uintptr_t> CapturedStep::fingerprint() const {
  std::vector<std::uintptr_t> values = {run_->view.wrapper.model().is_training() ? std::uintptr_t{1} : 0,
                                        static_cast<std::uintptr_t>(hook_work_)};
  for (const at::Tensor& tensor : watched_) {
    values.push_back(reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()));
    values.push_back(tensor.requires_grad() ? 1 : 0);
  }
  return values;
}

/// Whether enough eager steps came before a recording. Counts one.
bool CapturedStep::is_warm() {
  if (eager_steps_ >= kEagerSteps) return true;
  ++eager_steps_;
  return false;
}

/// Whether the step is updated in any case, and the communication hook does what it did in the step before.
bool CapturedStep::is_usual(std::span<const models::LossWeights> weights) {
  const std::int64_t work = hook_memory_ != nullptr ? hook_memory_->work() : 0;
  if (std::exchange(hook_work_, work) != work) {
    is_warm();
    return false;
  }
  return std::ranges::none_of(weights, &models::LossWeights::count_nothing);
}

void CapturedStep::begin(std::span<const batch::Batch> batches, std::span<const models::LossWeights> weights) {
  parts_.clear();
  if (!reason_.empty() || !is_usual(weights)) return;
  if (recordings_.empty() && !is_warm()) return;
  prepare(batches);
  if (is_ready(weights)) {
    eager_steps_ = 0;
  } else {
    parts_.clear();
  }
}

void CapturedStep::prepare(std::span<const batch::Batch> batches) {
  for (const batch::Batch& batch : batches) {
    seed_(std::ssize(parts_));
    batch::Batch prepared = run_->view.wrapper.prepare(batch, /*is_training=*/true);
    parts_.push_back({.prepared = std::move(prepared), .draws = models::GeneratorStates::now(run_->view.device)});
  }
}

/// Finds the recordings of the step, or makes them, and counts the step. Collective.
bool CapturedStep::is_ready(std::span<const models::LossWeights> weights) {
  if (!recordings_.empty() && !run_->view.world.agree(fits(weights))) {
    if (!is_warm()) return false;
    recordings_.clear();  // these steps stay as they are
  }
  if (!recordings_.empty() && !count_step()) recordings_.clear();
  return !recordings_.empty() || record(weights);
}

CapturedStep::Recording* CapturedStep::recording_for(std::size_t part, const models::LossWeights& weights) const {
  const auto found = std::ranges::find_if(recordings_, [&](const auto& recording) {
    return recording->is_first == (part == 0) && recording->is_last == (part + 1 == parts_.size()) &&
           recording->weights.by_name.size() == weights.by_name.size() &&
           are_alike(recording->inputs, parts_[part].prepared);
  });
  return found == recordings_.end() ? nullptr : found->get();
}

bool CapturedStep::fits(std::span<const models::LossWeights> weights) {
  if (fingerprint_ != fingerprint()) return false;
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].recording = recording_for(part, weights[part]);
    if (parts_[part].recording == nullptr) return false;
  }
  return true;
}

/// False: the step has to be recorded again.
bool CapturedStep::count_step() {
  optim::OptimWrapper& optimizer = run_->view.optimizer;
  optimizer.count_recorded_update();
  if (!std::all_of(recordings_.begin(), recordings_.end(), [](const auto& each) { return each->live.holds(); })) {
    optimizer.uncount_recorded_update();
    return false;
  }
  if (hook_memory_ != nullptr && hook_memory_->step_count() != nullptr) ++*hook_memory_->step_count();
  return true;
}

std::string CapturedStep::why_unrecordable() const {
  if (recorded_steps_ > kMaxRecordings) return "they changed more than " + std::to_string(kMaxRecordings) + " times";
  for (const QueuedPart& part : parts_) {
    const std::string value = unreadable_value(part.prepared, run_->view.device);
    if (!value.empty()) return "'" + value + "' of the batch is not a tensor on the device";
  }
  return "";
}

/// False: the step could not be recorded, on any rank.
bool CapturedStep::record(std::span<const models::LossWeights> weights) {
  RunView& view = run_->view;
  std::int64_t* const hook_steps = hook_memory_ != nullptr ? hook_memory_->step_count() : nullptr;
  const std::int64_t hook_steps_before = hook_steps != nullptr ? *hook_steps : 0;
  ++recorded_steps_;
  std::string reason = why_unrecordable();
  if (view.world.agree(reason.empty())) {
    view.wrapper.check_last_step();
    view.optimizer.settle();
    reason = record_parts(weights);
    is_unchecked_ = view.world.agree(reason.empty());
    if (is_unchecked_) return true;
    view.optimizer.uncount_recorded_update();
    if (hook_steps != nullptr) *hook_steps = hook_steps_before;
    view.wrapper.reset_state(parallel::GivenUp::recording);
  }
  for (const std::string& each : view.world.all_gather(reason)) {
    if (reason.empty()) reason = each;
  }
  give_up(reason);
  return false;
}

/// All of a step before any is launched: a step whose recording fails is run eagerly from its beginning.
std::string CapturedStep::record_parts(std::span<const models::LossWeights> weights) {
  fingerprint_ = fingerprint();
  for (std::size_t part = 0; part < parts_.size(); ++part) {
    parts_[part].recording = recording_for(part, weights[part]);
    if (parts_[part].recording != nullptr) continue;
    std::string reason = record_part(part, weights[part]);
    if (!reason.empty()) return reason;
  }
  return "";
}

std::string CapturedStep::record_part(std::size_t part, const models::LossWeights& weights) {
  RunView& view = run_->view;
  const Recording* const beside = recordings_.empty() ? nullptr : recordings_.front().get();
  recordings_.push_back(std::make_unique<Recording>(run_->resources.gpu, view.collectives, view.device, beside));
  Recording& target = *recordings_.back();
  target.is_first = part == 0;
  target.is_last = part + 1 == parts_.size();
  target.weights = weights;
  target.inputs = cloned(parts_[part].prepared);
  parts_[part].recording = &target;
  parts_[part].draws.establish();
  const models::ScopedRecordedDraws draws(
      models::RecordedDraws{.place = [&target] { return target.graph.draw_offset(); },
                            .return_to = [&target](std::uint64_t place) { target.graph.set_draw_offset(place); }});
  const std::string reason = target.graph.record([&] { run_recorded_work(target); });
  at::Tensor& loss = target.losses.total;
  if (loss.defined()) loss = loss.detach();  // drops the graph of autograd
  return reason;
}

void CapturedStep::run_recorded_work(Recording& target) {
  parallel::DistributedDataParallel& wrapper = run_->view.wrapper;
  RecordingOptimizer optimizer(run_->view.optimizer, target);
  const auto frame = wrapper.micro_batch(optimizer);
  for (std::size_t i = 0; i < target.weights.by_name.size(); ++i) {
    target.weights.live.push_back(target.live.number([&target, i] { return target.weights.by_name[i].second; }));
  }
  target.losses =
      wrapper.train_prepared(target.inputs, optimizer, target.weights, *run_->step.captured, optimizer).losses;
}

parallel::StepResult CapturedStep::run(std::int64_t part, const batch::Batch& batch,
                                       const models::LossWeights& weights) {
  QueuedPart& given = parts_[static_cast<std::size_t>(part)];
  Recording& recording = *given.recording;
  recording.weights.usual = weights.usual;
  recording.weights.by_name = weights.by_name;
  recording.live.refresh();
  copy_values(recording.inputs, given.prepared);
  given.prepared = {};
  given.draws.establish();
  recording.graph.launch();
  if (recording.is_last) {
    parts_.clear();
    if (std::exchange(is_unchecked_, false)) run_->view.wrapper.check_last_step();
  }
  return finish(recording, batch, weights);
}

parallel::StepResult CapturedStep::finish(const Recording& recording, const batch::Batch& batch,
                                          const models::LossWeights& weights) {
  RunView& view = run_->view;
  MicroBatchEvents events({.given = &batch, .model = &view.wrapper.model()}, notify_, &view.optimizer);
  events.on_prepared(recording.inputs);
  {
    const auto context = view.wrapper.optim_context(view.optimizer);
    events.on_forward(recording.outputs);
    events.on_loss(recording.losses);
  }
  if (recording.is_last) events.on_backward();
  parallel::StepResult result{.update = view.optimizer.read_recorded_update()};
  events.on_update();
  view.wrapper.read_losses(result, recording.losses, weights, reads_late_);  // the next launch replaces them
  return result;
}

}  // namespace lockstep::engine
