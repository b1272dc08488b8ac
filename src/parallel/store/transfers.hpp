// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <optional>
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

}  // namespace lockstep::parallel
