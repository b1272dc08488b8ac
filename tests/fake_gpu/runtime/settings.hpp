// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>

#include "fake_gpu/fake_gpu.hpp"

namespace lockstep::fake_gpu {

/// When queued work runs. Each is an order that a GPU may take.
enum class QueueSchedule {
  threads,  ///< runs as soon as it can, on a thread per stream
  lazy,     ///< once the host waits for it or asks about it: buffers that are used again too early show
  eager,    ///< runs within the call that queues it
};

/// The environment, read once.
struct RuntimeSettings {
  QueueSchedule schedule = QueueSchedule::threads;  ///< FAKE_GPU_SCHEDULE
  int max_delay_us = 0;          ///< FAKE_GPU_DELAY_US: longest delay before an operation (schedule threads)
  std::uint64_t seed = 0;        ///< FAKE_GPU_SEED: of the delays and of the order in which graphs are replayed
  int devices = 1;               ///< FAKE_GPU_DEVICES
  int devices_per_card = 1;      ///< FAKE_GPU_SLICES: devices that have one PCI bus id, as slices (MIG) do
  std::size_t memory_bytes = 0;  ///< FAKE_GPU_MEMORY_MB: of each device
  int driver_status = 0;         ///< FAKE_GPU_DRIVER: what cuInit returns
  FaultPlan fault;               ///< FAKE_GPU_FAULT, where FAKE_GPU_FAULT_RANK is this rank or not set
  bool is_traced = false;        ///< FAKE_GPU_TRACE: prints each operation
};
const RuntimeSettings& settings();

}  // namespace lockstep::fake_gpu
