// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <exception>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "core/text/text.hpp"
#include "engine/hooks/hook_rows.hpp"
#include "engine/measures/trace.hpp"
#include "engine/settings/run_settings.hpp"

namespace lockstep::engine {

namespace {

constexpr std::size_t kMaxSpans = 1'000'000;  // limit for each rank

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

constexpr double kNanosecondsPerMicrosecond = 1000;

/// Operators on the host are noted by OperatorTrace.
const std::set<ActivityType> kActivities = {ActivityType::CUDA};

Span span_of(const profiler::KinetoEvent& event) {
  const double begin = static_cast<double>(event.startNs()) / kNanosecondsPerMicrosecond;
  return {.name = event.name(),
          .thread = kFirstStream + event.deviceResourceId(),
          .begin = begin,
          .end = begin + static_cast<double>(event.durationNs()) / kNanosecondsPerMicrosecond};
}

/// While one lives, the work of this process on its GPU is noted: kernels, copies and memsets of all streams, by
/// LibTorch's Kineto with NVIDIA's CUPTI. One at a time; begun and ended by the same thread.
class DeviceTrace {
 public:
  DeviceTrace() noexcept {
    try {
      const ProfilerConfig config(ProfilerState::KINETO);
      profiler::prepareProfiler(config, kActivities);
      profiler::enableProfiler(config, kActivities);
      is_open_ = true;
    } catch (const std::exception& error) {
      fault_ = message_of(error);
    }
  }
  ~DeviceTrace() { take(); }
  DeviceTrace(const DeviceTrace&) = delete;
  DeviceTrace& operator=(const DeviceTrace&) = delete;

  /// Ends the recording, for which the GPU finishes its work. Once.
  /// @return  spans of threads from kFirstStream on, one for each stream
  std::vector<Span> take() noexcept {
    std::vector<Span> spans;
    if (!is_open_) return spans;
    is_open_ = false;
    try {
      const std::unique_ptr<profiler::ProfilerResult> result = profiler::disableProfiler();
      for (const profiler::KinetoEvent& event : result->events()) {
        if (event.deviceType() == c10::DeviceType::CUDA) spans.push_back(span_of(event));
      }
      if (spans.empty())
        fault_ = "CUPTI reported no work of the GPU; the driver may allow profiling to administrators only";
    } catch (const std::exception& error) {
      fault_ = message_of(error);
    }
    return spans;
  }
  /// Why `take` has returned nothing; empty = there is something.
  const std::string& fault() const noexcept { return fault_; }

 private:
  bool is_open_ = false;
  std::string fault_;
};

/// Each event ends a section of the step and begins the next one. Operators are noted on the host by LibTorch's own
/// callbacks, and the kernels that they start on a GPU by DeviceTrace.
class ProfilerHook : public Hook {
 public:
  ProfilerHook(std::int64_t from_step, std::int64_t steps, std::vector<std::int64_t> ranks, std::string folder)
      : Hook(HookReads::nothing()),
        from_step_(from_step),
        steps_(steps),
        ranks_(std::move(ranks)),
        folder_(std::move(folder)) {}

  void before_train(RunView& run) override {
    const mpi::Communicator& world = run.world;
    for (const std::int64_t rank : ranks_) {
      if (rank < world.size()) continue;
      throw_agreed(ExitCode::configuration, "train.hooks: profiler: ranks: there is no rank " + std::to_string(rank) +
                                                " among " + std::to_string(world.size()));
    }
    is_shown_ = ranks_.empty() || std::find(ranks_.begin(), ranks_.end(), world.rank()) != ranks_.end();
    // A run that continues behind the window has had its trace.
    is_over_ = run.progress.step >= from_step_ + steps_;
  }

  void before_step(RunView& run) override {
    if (is_over_ || run.progress.step < from_step_) return;
    end_section("between steps");
    if (!is_open_) {
      is_open_ = true;
      if (is_shown_) operators_.emplace(kMaxSpans);
      if (is_shown_ && run.device.is_cuda()) kernels_.emplace();
    }
    const double now = trace_now();
    step_begin_ = now;
    section_begin_ = now;
  }

  void on_forward(RunView&, const LastBatch&) override { end_section("data and forward"); }
  void on_loss(RunView&, const LastBatch&) override { end_section("loss"); }
  void on_backward(RunView&, const LastBatch&) override { end_section("backward"); }
  void on_update(RunView&, const LastBatch&) override { end_section("update"); }
  void before_agreement(RunView&) override { end_section("rest of the step"); }

  void after_step(RunView& run, const StepReport& report) override {
    if (!is_open_) return;
    end_section("agreement");
    const std::int64_t step = report.progress.step;
    if (is_shown_) spans_.push_back({fmt::format("step {}", step), 0, step_begin_, trace_now()});
    if (step >= from_step_ + steps_) write(run, Outcome::done);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (is_open_) {
      write(run, outcome);
    } else if (!is_over_) {
      log::warning("profiler: the run ended before step " + std::to_string(from_step_ + 1) + ": no trace was written");
    }
  }

 private:
  void end_section(const char* name) {
    if (!is_open_) return;
    const double now = trace_now();
    if (is_shown_) spans_.push_back({name, 0, section_begin_, now});
    section_begin_ = now;
  }

  /// One file of all ranks; after a failure, which may be of this rank alone, one of its own.
  void write(RunView& run, Outcome outcome) {
    const mpi::Communicator& world = run.world;
    const std::string events = own_events(world.rank());
    is_open_ = false;
    is_over_ = true;
    if (outcome == Outcome::failed) {
      if (is_shown_) save(fmt::format("{}/trace-rank{:05}.json", folder_, world.rank()), {events});
      return;
    }
    const std::vector<std::string> all = world.gather(events);
    if (world.is_root()) save(folder_ + "/trace.json", all);
  }

  std::string own_events(int rank) {
    if (!is_shown_) return "";
    append(operators_->take());
    if (operators_->dropped() > 0) {
      log::warning(fmt::format("profiler: {} operators came after the first {} and are not in the trace",
                               operators_->dropped(), kMaxSpans));
    }
    operators_.reset();
    if (kernels_) add_kernels();
    std::string events = trace_events(spans_, rank);
    spans_.clear();
    return events;
  }

  void append(std::vector<Span> spans) {
    spans_.insert(spans_.end(), std::make_move_iterator(spans.begin()), std::make_move_iterator(spans.end()));
  }

  void add_kernels() {
    append(kernels_->take());
    if (!kernels_->fault().empty()) {
      log::warning("profiler: the trace shows the host only, not the GPU: " + kernels_->fault());
    }
    kernels_.reset();
  }

  /// Without a trace a run is as good as with it: no failure.
  static void save(const std::string& path, const std::vector<std::string>& events) {
    std::ofstream file(path, std::ios::trunc);
    file << trace_file(events);
    file.close();
    if (file) {
      log::info("profiler: trace written to " + path);
    } else {
      log::warning("profiler: the trace cannot be written to " + path);
    }
  }

  std::int64_t from_step_;
  std::int64_t steps_;
  std::vector<std::int64_t> ranks_;  // none = all
  std::string folder_;
  bool is_shown_ = false;  // this rank
  bool is_open_ = false;   // inside of the window
  bool is_over_ = false;
  double step_begin_ = 0;
  double section_begin_ = 0;
  std::vector<Span> spans_;
  std::optional<OperatorTrace> operators_;
  std::optional<DeviceTrace> kernels_;  // none without a GPU
};

}  // namespace

HookRow profiler_row() {
  return {.name = "profiler",
          .help =
              "Writes run.dir/trace.json for chrome://tracing or Perfetto: steps, their sections, operators, and the "
              "kernels and copies of a GPU, for each rank",
          .keys = {keys::integer("from_step", "10", "Number of steps before the first traced step", 0, kMaxSteps),
                   keys::integer("steps", "3", "Number of traced steps", 1, 10000),
                   keys::integers("ranks", "", "Traced ranks. If empty, all ranks are traced", 0, 1e6)},
          .priority = Priority::highest,
          .make = [](const Section& options, const HookContext& context) {
            return std::make_unique<ProfilerHook>(options.integer("from_step"), options.integer("steps"),
                                                  options.integers("ranks"),
                                                  RunSettings::from(context.run.at("run")).dir);
          }};
}

}  // namespace lockstep::engine
