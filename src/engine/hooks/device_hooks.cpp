// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <utility>

#include "core/system/resources.hpp"
#include "core/text/parse_value.hpp"
#include "engine/hooks/hook_rows.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/measures/flop_counter.hpp"
#include "engine/settings/run_position.hpp"
#include "mpi/gpu/gpu.hpp"

namespace lockstep::engine {

namespace {

constexpr double kMegabyte = 1 << 20;

/// Values in MB; of the GPU 0 where there is none.
struct Memory {
  double resident = 0;
  double peak = 0;
  double gpu_allocated = 0;
  double gpu_peak = 0;  // allocated
  double gpu_reserved = 0;
};

Memory memory_of(at::Device device) {
  Memory memory{.resident = resident_memory_mb(), .peak = peak_memory_mb()};
  if (device.is_cpu()) return memory;
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const std::int64_t buckets = mpi::bucket_bytes_on_gpu();
  memory.gpu_allocated = static_cast<double>(stats.allocated_bytes[all].current + buckets) / kMegabyte;
  memory.gpu_peak = static_cast<double>(stats.allocated_bytes[all].peak + buckets) / kMegabyte;
  memory.gpu_reserved = static_cast<double>(stats.reserved_bytes[all].current + buckets) / kMegabyte;
  return memory;
}

class MemoryHook : public Hook {
 public:
  explicit MemoryHook(const Every& every) : Hook(HookReads::nothing()), every_(every) {}

  void after_step(RunView& run, const StepReport& report) override {
    if (!is_log_due(report.progress, every_)) return;
    const at::Device device = run.device;
    const Memory now = memory_of(device);
    const auto scope = run.events.scope("memory");
    const auto put = [&run](const char* name, double value) {
      run.events.put(name, value, {.is_smoothed = false, .owner = "memory"});
    };
    put("rss_mb", now.resident);
    put("peak_rss_mb", now.peak);
    run.events.put_of_rank("rss_mb", now.resident, "memory");
    if (device.is_cpu()) return;
    put("gpu_allocated_mb", now.gpu_allocated);
    put("gpu_peak_mb", now.gpu_peak);
    put("gpu_reserved_mb", now.gpu_reserved);
  }

  void after_train(RunView& run, Outcome outcome) override {
    if (outcome == Outcome::failed) return;
    const at::Device device = run.device;
    const Memory mine = memory_of(device);
    std::array<double, 2> max = {mine.peak, mine.gpu_peak};
    run.world.all_reduce(std::span<double>(max), mpi::Op::max);
    log::info(fmt::format("memory: maximum {:.1f} MB per process", max[0]) +
              (device.is_cpu() ? "" : fmt::format(", {:.1f} MB allocated per GPU", max[1])));
  }

 private:
  Every every_;
};

class EmptyCacheHook : public Hook {
 public:
  EmptyCacheHook(const EmptyCacheTimes& times, std::function<void(RunView&)> empty)
      : Hook(HookReads::nothing()), times_(times), empty_(std::move(empty)) {}

  void after_step(RunView& run, const StepReport& report) override {
    if (times_.every.is_due(position_of(report.progress))) empty_(run);
  }
  void after_evaluation(RunView& run, const Measured&) override {
    if (times_.is_after_evaluations) empty_(run);
  }

 private:
  EmptyCacheTimes times_;
  std::function<void(RunView&)> empty_;
};

void empty_cache_of(RunView& run) {
  if (!run.device.is_cpu()) at::accelerator::emptyCache();
}

/// Former options had steps and epochs for themselves.
KeySpec every_of_cache_key() {
  const auto with = [](const auto& set) {
    return [set](const std::string& former, const std::string& current) {
      Repetition repetition = Every::parse(current.empty() ? "1epochs" : current, "every").first();
      set(repetition, former);
      return Every(repetition).text();
    };
  };
  const auto set_steps = [](Repetition& repetition, const std::string& steps) {
    repetition.steps = parse_integer(steps).value_or(0);
  };
  const auto set_epochs = [](Repetition& repetition, const std::string& is_after_epochs) {
    repetition.epochs = parse_boolean(is_after_epochs).value_or(true) ? 1 : 0;
  };
  KeySpec key = every_key("1epochs", "returns");
  key = keys::replacing(key, {.key = "interval", .translate = with(set_steps)});
  return keys::replacing(key, {.key = "epochs", .translate = with(set_epochs)});
}

std::unique_ptr<Hook> make_empty_cache(const Section& options, const HookContext&) {
  const EmptyCacheTimes times{.every = every_of(options), .is_after_evaluations = options.boolean("evaluations")};
  return empty_cache_hook_at(times, empty_cache_of);
}

constexpr const char* kUtilization = "utilization";
/// The backward of a product is two products.
constexpr double kForwardsPerStep = 3;

double peak_memory_of(const at::Device& device) {
  const Memory memory = memory_of(device);
  return device.is_cpu() ? memory.peak : memory.gpu_peak;
}

class UtilizationHook : public Hook {
 public:
  UtilizationHook(const Every& every, std::optional<double> peak_flops, at::ScalarType type)
      : Hook(HookReads::nothing()), every_(every), peak_flops_(peak_flops), type_(type) {}

  void before_step(RunView& run) override {
    if (has_counted_ || peak_flops_ == 0.0) return;
    has_counted_ = true;
    if (run.world.is_root()) counter_ = std::make_unique<FlopCounter>();
  }

  void on_forward(RunView&, const LastBatch& last) override {
    if (!counter_) return;
    flops_per_sample_ = static_cast<double>(counter_->count()) / static_cast<double>(last.batch->size());
    counter_.reset();
  }

  void after_step(RunView& run, const StepReport& report) override {
    counter_.reset();  // drops the counts of steps that never call on_forward
    ++steps_;
    seconds_ += report.seconds;
    if (!is_log_due(report.progress, every_)) return;
    const double memory = peak_memory_of(run.device);
    run.events.put("memory_mb", memory, {.is_smoothed = false, .owner = kUtilization});
    run.events.put_of_rank("memory_mb", memory, kUtilization);
    if (peak_flops_ != 0.0 && !peak_flops_) peak_flops_ = measured_peak_flops(run.device, type_);
    if (run.world.is_root() && flops_per_sample_ > 0) {
      const double flops =
          kForwardsPerStep * flops_per_sample_ * static_cast<double>(steps_ * report.samples) / seconds_;
      run.events.put("mfu", flops / (*peak_flops_ * run.world.size()), {.is_smoothed = false, .owner = kUtilization});
    }
    steps_ = 0;
    seconds_ = 0;
  }

 private:
  Every every_;
  std::optional<double> peak_flops_;  // peak of one device; 0 = not compared, none = not measured yet
  at::ScalarType type_;
  bool has_counted_ = false;
  std::unique_ptr<FlopCounter> counter_;  // during the first forward
  double flops_per_sample_ = 0;           // operations of the forward only
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace

HookRow memory_row() {
  return {.name = "memory",
          .help =
              "Logs the memory of rank 0 (process and GPU, in MB) as memory/..., and the maximum over all ranks at the "
              "end of the run",
          .keys = {renamed_every_key("20", "measurements; the last step always has one", "interval")},
          .priority = Priority::normal,
          .make = [](const Section& options, const HookContext&) {
            return std::make_unique<MemoryHook>(every_of(options));
          }};
}

std::unique_ptr<Hook> empty_cache_hook_at(const EmptyCacheTimes& times, std::function<void(RunView&)> empty) {
  return std::make_unique<EmptyCacheHook>(times, std::move(empty));
}

HookRow empty_cache_row() {
  return {.name = "empty_cache",
          .help =
              "Returns GPU memory that LibTorch keeps for reuse, for example to another process. The next steps "
              "allocate it again, which takes time",
          .keys = {every_of_cache_key(), keys::boolean("evaluations", "true", "Return memory after each evaluation")},
          .priority = Priority::normal,
          .make = make_empty_cache};
}

PrioritizedHook utilization_hook(const Every& every, std::optional<double> peak_flops, at::ScalarType type) {
  return {Priority::normal, std::make_unique<UtilizationHook>(every, peak_flops, type)};
}

}  // namespace lockstep::engine
