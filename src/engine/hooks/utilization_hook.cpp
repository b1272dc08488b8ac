// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <ATen/DeviceAccelerator.h>

#include <memory>

#include "core/system/process.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/measures/flop_counter.hpp"
#include "mpi/gpu/gpu.hpp"

namespace lockstep::engine {

namespace {

constexpr const char* kUtilization = "utilization";
constexpr double kBytesPerMegabyte = 1 << 20;
/// The backward of a product is two products.
constexpr double kForwardsPerStep = 3;

double peak_memory_of(const at::Device& device) {
  if (device.is_cpu()) return peak_memory_mb();
  const auto stats = at::accelerator::getDeviceStats(device.index());
  const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return static_cast<double>(stats.allocated_bytes[all].peak + mpi::bucket_bytes_on_gpu()) / kBytesPerMegabyte;
}

class UtilizationHook : public Hook {
 public:
  UtilizationHook(std::int64_t interval, std::optional<double> peak_flops, at::ScalarType type)
      : Hook(HookReads::nothing()), interval_(interval), peak_flops_(peak_flops), type_(type) {}

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
    if (!is_log_due(report.progress, interval_)) return;
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
  std::int64_t interval_;
  std::optional<double> peak_flops_;  // peak of one device; 0 = not compared, none = not measured yet
  at::ScalarType type_;
  bool has_counted_ = false;
  std::unique_ptr<FlopCounter> counter_;  // during the first forward
  double flops_per_sample_ = 0;           // operations of the forward only
  std::int64_t steps_ = 0;
  double seconds_ = 0;
};

}  // namespace

PrioritizedHook utilization_hook(std::int64_t interval, std::optional<double> peak_flops, at::ScalarType type) {
  return {Priority::normal, std::make_unique<UtilizationHook>(interval, peak_flops, type)};
}

}  // namespace lockstep::engine
