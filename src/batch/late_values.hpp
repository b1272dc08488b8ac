// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::batch {

/// Numbers of a device that the host reads some time after they were computed, such as one step later: by then the
/// device has computed them, and goes on meanwhile. On the CPU they are a copy.
class LateValues {
 public:
  /// Queues a copy of `values` behind the work that the current stream has so far. Replaces what was queued before.
  /// @param values  of any shape and type; the same in every call, or memory is allocated anew
  void queue(const at::Tensor& values);

  /// Whether something was queued and not yet taken.
  bool are_pending() const noexcept { return are_pending_; }

  /// Waits until the copy is done.
  /// @return  on the CPU; valid until the next `queue`
  at::Tensor take();

 private:
  at::Tensor host_;  // page-locked, or the copy would not be asynchronous
  std::optional<c10::Event> copied_;
  bool are_pending_ = false;
};

/// Memory for late values of one shape and type, for as many at a time as are held. Memory that nobody holds any more
/// is used again, so a training allocates none after its first steps.
class LatePlaces {
 public:
  /// @return  values that `LateValues::queue` was called for
  std::shared_ptr<LateValues> queue(const at::Tensor& values);

 private:
  std::vector<std::shared_ptr<LateValues>> places_;
};

}  // namespace lockstep::batch
