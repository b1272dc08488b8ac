// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::parallel {

/// Copies between a device and page-locked memory, each with a number. On a GPU they are queued on a stream of their
/// own, beside the computation; on the CPU they are done at once.
///
/// A copy follows the work that the current stream has when it is started. Whoever needs its result, or changes what it
/// reads, calls `follow` or `await` first.
class Transfers {
 public:
  /// @param device  of one side of every copy
  /// @param count   of copies that can be under way at a time, numbered from 0
  Transfers(at::Device device, std::size_t count);
  /// The current stream follows all copies: the memory of both sides can be given back.
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Starts copy `number`. Both tensors are of one type and shape and without gaps, and live until the copy is over.
  void start(std::size_t number, const at::Tensor& target, const at::Tensor& from);
  /// Has the current stream wait for copy `number` as it was last started, if it was.
  void follow(std::size_t number) const;
  /// Waits for it on the host.
  void await(std::size_t number) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // none = the CPU
  std::optional<c10::Event> begun_;    // the work that the next copy follows
  std::vector<std::optional<c10::Event>> ends_;
};

/// [count] Memory of the host that a GPU can copy to and from beside its computation.
at::Tensor page_locked(std::int64_t count, at::ScalarType type);

/// Copies in the host's memory of vectors on a GPU, each with a number, which are started once until what they read
/// changes.
class HostCopies {
 public:
  /// @param device  of what is copied
  /// @param memory  of each copy, page-locked
  HostCopies(at::Device device, std::vector<at::Tensor> memory)
      : transfers_(device, memory.size()), memory_(std::move(memory)), is_started_(memory_.size()) {}

  /// Whether a copy has to be started. From here on it counts as started.
  bool begin(std::size_t number) { return std::exchange(is_started_.at(number), char{1}) == 0; }
  /// Starts to copy `from` to the elements from `first` on.
  void start(std::size_t number, std::int64_t first, const at::Tensor& from);
  /// A copy, for which the host waits.
  const at::Tensor& get(std::size_t number) const;
  /// Must be called before later work of the device changes what a copy has read.
  void forget(std::size_t number);
  /// The same, if such work follows every copy anyway.
  void forget_all() noexcept { std::fill(is_started_.begin(), is_started_.end(), char{0}); }

 private:
  Transfers transfers_;
  std::vector<at::Tensor> memory_;
  std::vector<char> is_started_;
};

/// Copies batches to a device. On a GPU the copies are queued on a stream of their own: the batch of a step arrives
/// while the GPU computes the step before, if the host is ahead.
class BatchCopies {
 public:
  explicit BatchCopies(const at::Device& device);

  /// The same as batch::scatter. Work that is queued on the current stream afterwards waits for the copies.
  batch::Batch copy(const batch::Batch& batch);

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // none = the current one
  std::optional<c10::Event> copied_;
};

}  // namespace lockstep::parallel
