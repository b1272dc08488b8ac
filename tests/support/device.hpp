// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <memory>

#include "mpi/gpu/gpu.hpp"

namespace lockstep::mpi {

/// The memory of a GPU, or of what stands in for one, as tests see it. Not collective.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::shared_ptr<const Gpu> gpu() const = 0;
  virtual std::shared_ptr<std::byte> memory(std::size_t bytes) const = 0;
  /// Both follow what was queued on the current stream, and return when they are done.
  virtual void write(std::byte* target, const void* from, std::size_t bytes) const = 0;
  virtual void read(void* target, const std::byte* from, std::size_t bytes) const = 0;
};

}  // namespace lockstep::mpi
