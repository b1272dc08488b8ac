// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <functional>
#include <vector>

/// A CUDA graph for machines without a GPU: what LibTorch computes on the CPU is recorded operation by operation, below
/// autograd, with the memory that it reads and writes. Numbers of the host are recorded as they are, so that a step
/// that depends on one computes something else when it is replayed. As during a capture, the host cannot read a value.
///
/// What does not go through LibTorch's dispatcher, such as Lockstep's own loops over float32, is not recorded.
namespace lockstep::testing {

using RecordedOps = std::vector<std::function<void()>>;

/// Operations of this thread are done and appended to `ops` from now on.
void begin_recording(RecordedOps* ops);
void end_recording();
/// Ends the recording and puts back what its operations have changed in place.
void undo_recording();

/// Records what `body` does.
RecordedOps recorded(const std::function<void()>& body);

}  // namespace lockstep::testing
