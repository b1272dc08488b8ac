// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <functional>

namespace lockstep::mpi {

/// An ability of Collectives: buckets are in GPU memory, and operations on device memory can be recorded in a graph.
class DeviceCollectives {
 public:
  virtual ~DeviceCollectives() = default;

  /// Operations on device memory are recorded in a graph of the current stream and not done between these calls, also
  /// those of objects that were split from this one. All ranks record the same operations and then call `replay` with
  /// the same graph.
  virtual void begin_capture() = 0;
  virtual void end_capture() = 0;
  /// Not collective.
  virtual bool is_capturing() const noexcept = 0;
  /// @param launch  queues the recorded graph on the current stream
  virtual void replay(const std::function<void()>& launch) = 0;

  /// Whether operations on device memory were given up because a peer or the network failed. The device goes on with
  /// what they left behind, and nothing that it computes afterwards is to be kept. From any thread; not collective.
  virtual bool has_failed() const noexcept = 0;
};

/// The ability of an object; null = its buckets are in host memory.
inline DeviceCollectives* on_device(Collectives& collectives) { return dynamic_cast<DeviceCollectives*>(&collectives); }
inline const DeviceCollectives* on_device(const Collectives& collectives) {
  return dynamic_cast<const DeviceCollectives*>(&collectives);
}

/// Whether buckets are in GPU memory.
inline bool has_device_buckets(const Collectives& collectives) { return on_device(collectives) != nullptr; }

}  // namespace lockstep::mpi
