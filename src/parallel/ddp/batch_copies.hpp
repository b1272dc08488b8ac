// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

namespace lockstep::parallel {

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
