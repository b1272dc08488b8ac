// SPDX-License-Identifier: BSD-3-Clause
#include "engine/rehearsal.hpp"

#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/optim/optim_wrapper.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <c10/core/Allocator.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text/duration.hpp"
#include "engine/state/model_tensors.hpp"
#include "engine/steps/perf_timer.hpp"
#include "engine/training_run.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/shards.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kUnmeasured = 5;  // steps: buckets are rebuilt, and libraries choose their kernels
constexpr std::int64_t kMinMeasured = 10;
constexpr std::int64_t kMaxMeasured = 400;
constexpr std::int64_t kWeighed = 3;  // number of the step with measured memory

/// Counts the memory of tensors that this thread allocates and frees.
class TensorMemory : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void* /*begin*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device /*device*/) override {
    bytes_ += bytes;
    peak_ = std::max(peak_, bytes_);
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::int64_t peak() const noexcept { return peak_; }

 private:
  std::int64_t bytes_ = 0;
  std::int64_t peak_ = 0;
};

/// Counts the memory of this thread during its lifetime. LibTorch then warns of memory that was allocated before.
class MemoryCount {
 public:
  MemoryCount() : log_level_(FLAGS_caffe2_log_level), guard_(c10::DebugInfoKind::PROFILER_STATE, memory_) {
    FLAGS_caffe2_log_level = c10::GLOG_ERROR;
  }
  ~MemoryCount() { FLAGS_caffe2_log_level = log_level_; }
  MemoryCount(const MemoryCount&) = delete;
  MemoryCount& operator=(const MemoryCount&) = delete;

  std::int64_t peak() const noexcept { return memory_->peak(); }

 private:
  int log_level_;
  std::shared_ptr<TensorMemory> memory_ = std::make_shared<TensorMemory>();
  c10::DebugInfoGuard guard_;
};

/// Notes the times of steps and the memory of one of them, and ends the run.
class RehearsalHook : public Hook {
 public:
  RehearsalHook(Rehearsal& result, double seconds) : result_(&result), seconds_(seconds) {}

  void before_step(RunView& run) override {
    if (run.progress.step + 1 == kWeighed) memory_.emplace();
  }

  void after_step(RunView& run, const StepReport& report) override {
    const std::int64_t step = report.progress.step;
    if (memory_) result_->activation_bytes = memory_->peak();
    memory_.reset();
    if (step <= kUnmeasured) {
      if (step == kWeighed) began_ = SteadyClock::now();
      if (step == kUnmeasured) last_step_ = step + steps_to_do(run, step - kWeighed);
      if (step == kUnmeasured) run.perf->reset();
    } else {
      result_->step_seconds.push_back(seconds_since(last_));
      result_->data_seconds += report.data_seconds;
      if (step == last_step_) finish(run);
    }
    last_ = SteadyClock::now();
  }

 private:
  /// The same on every rank.
  std::int64_t steps_to_do(const RunView& run, std::int64_t timed) const {
    const double mine = seconds_since(began_) / static_cast<double>(timed);
    const double slowest = std::max(1e-6, run.world.all_reduce(mine, mpi::Op::max));
    return std::clamp(static_cast<std::int64_t>(seconds_ / slowest), kMinMeasured, kMaxMeasured);
  }

  void finish(RunView& run) {
    const auto steps = static_cast<double>(result_->step_seconds.size());
    result_->data_seconds /= steps;
    for (const std::string_view name : kStepSections) {
      const auto section = run.perf->sections().find(name);
      if (section == run.perf->sections().end()) continue;
      result_->sections.emplace_back(name, section->second.host_ms.sum() / 1e3 / steps);
    }
    run.requests.finish();
  }

  Rehearsal* result_;
  double seconds_;
  std::int64_t last_step_ = 0;
  SteadyClock::time_point began_;
  SteadyClock::time_point last_;
  std::optional<MemoryCount> memory_;
};

HeldBytes held_by(Run& run) {
  parallel::DistributedDataParallel& wrapper = *run.model.wrapper;
  parallel::ParameterStore& store = wrapper.store();
  HeldBytes held{.sharers = store.node_ranks().size()};
  const bool is_whole = store.shards() != nullptr && !store.shards()->frees();
  for (std::size_t b = 0; b < store.blocks().size(); ++b) {
    const auto element = static_cast<std::int64_t>(size_of(store.blocks()[b].dtype));
    const std::int64_t count = is_whole ? store.shards()->units()[b].count() : store.blocks()[b].count;
    held.parameters += count * element;
  }
  for (auto& [part, optimizer] : run.updates.parts) {
    optim::Optimizer& updates = optimizer.optimizer();
    for (std::size_t b = 0; b < optimizer.parameters().blocks().size(); ++b) {
      for (std::size_t slot = 0; slot < updates.state_names().size(); ++slot) {
        held.state += static_cast<std::int64_t>(updates.state(b, slot).size());
      }
    }
  }
  for (const parallel::Bucket& bucket : report_of(wrapper.reducer()).buckets) {
    held.gradients += bucket.count * static_cast<std::int64_t>(size_of(bucket.dtype));
  }
  for (const NamedTensor& buffer : buffers_of(wrapper.model())) {
    held.buffers += static_cast<std::int64_t>(buffer.tensor.nbytes());
  }
  for (const at::Tensor& parameter : wrapper.model().parameters()) {
    if (!parameter.requires_grad()) held.buffers += static_cast<std::int64_t>(parameter.nbytes());
  }
  return held;
}

}  // namespace

Rehearsal rehearse(const mpi::Communicator& world, Sections sections, const Registry& registry, double seconds) {
  const std::string origin = "plan";
  world.all_or_throw([&] {
    const std::pair<const char*, std::vector<std::pair<const char*, std::string>>> changes[] = {
        {"train", {{"max_steps", std::to_string(kUnmeasured + kMaxMeasured + 1)}, {"max_epochs", "0"}}},
        {"eval", {{"every", "never"}}},
        {"log", {{"sections", "true"}, {"every", std::to_string(10 * kMaxMeasured)}}},
        {"run", {{"peak_flops", "0"}}},
        {"ddp", {{"report", world.size() > 1 ? "true" : "false"}}},
    };
    for (const auto& [section, keys] : changes) {
      for (const auto& [key, value] : keys) sections.at(section).set(key, value, origin);
    }
    Section& train = sections.at("train");
    train.declare(KeySpec(train.values().at("hooks").spec));  // none
  });
  Rehearsal result;
  TrainRequest request{.sections = sections,
                       .registry = registry,
                       .checkpoint_directory = "",
                       .config_ini = "",
                       .environment_json = "",
                       .reporter = {},
                       .on_start = {},
                       .on_report = [&result](const parallel::DdpReport& report) { result.report = report; },
                       .hooks = {}};
  request.hooks.emplace_back(Priority::lowest, std::make_unique<RehearsalHook>(result, seconds));
  TrainingRun run(world, std::move(request));
  run.run();
  result.held = held_by(run.trainer().run());
  return result;
}

}  // namespace lockstep::engine
