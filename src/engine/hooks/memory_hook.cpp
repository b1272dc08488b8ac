// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <ATen/DeviceAccelerator.h>
#include <fmt/format.h>

#include <array>

#include "core/system/process.hpp"
#include "engine/hooks/hook_rows.hpp"
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
  explicit MemoryHook(std::int64_t interval) : Hook(HookReads::nothing()), interval_(interval) {}

  void after_step(RunView& run, const StepReport& report) override {
    const Progress& progress = report.progress;
    if (progress.step % interval_ != 0 && progress.step != progress.total_steps) return;
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
  std::int64_t interval_;
};

std::unique_ptr<Hook> make_memory(const Section& options, const HookContext&) {
  return std::make_unique<MemoryHook>(options.integer("interval"));
}

}  // namespace

HookRow memory_row() {
  return {.name = "memory",
          .help =
              "Logs the memory of rank 0 (process and GPU, in MB) as memory/..., and the maximum over all ranks at the "
              "end of the run",
          .keys = {keys::integer("interval", "20", "Steps between measurements", 1, kMaxSteps)},
          .priority = Priority::normal,
          .make = make_memory};
}

}  // namespace lockstep::engine
