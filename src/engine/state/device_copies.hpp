// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::engine {

/// Copies of tensors of a device in page-locked memory, for checkpoints. The host only queues them, and the stream of
/// the computation goes on as soon as they are done: it cannot change a tensor too early.
///
/// The memory is kept from one checkpoint to the next. Where page-locked memory cannot be had, ordinary memory takes
/// its place, with one warning per process.
class DeviceCopies {
 public:
  /// Starts the copies of another checkpoint. The memory of archives that no longer exist is used again; what an
  /// archive still borrows stays as it is.
  void begin();

  /// Queues a copy behind the work that the current stream has so far. Later work of this stream may change the tensor
  /// or reuse its memory.
  /// @param tensor  on a device, of any layout; the same device in all calls
  /// @param what    name of the tensor for messages
  /// @return        the values in row-major order; they have arrived when the function `arrival` has returned
  /// @throws ConfigError  see parallel::dtype_of
  checkpoints::Array queue(const at::Tensor& tensor, const std::string& what);

  /// A function that returns when all copies that were queued so far have arrived: see Archive::set_arrival. It does
  /// not need this object. Empty if nothing was queued since `begin`.
  std::function<void()> arrival() const;

 private:
  /// Memory that arrays are cut from.
  struct CopyMemory {
    at::Tensor memory;  ///< [bytes] uint8
    std::int64_t used = 0;
  };

  at::Tensor take(std::size_t bytes);

  std::vector<CopyMemory> blocks_;
  std::optional<at::Device> device_;  // device of the tensors added since `begin`
};

}  // namespace lockstep::engine
