// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/submission.hpp"

#include <string>
#include <utility>

#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/counters.hpp"
#include "fake_gpu/runtime/faults.hpp"
#include "fake_gpu/runtime/report.hpp"

namespace lockstep::fake_gpu {

cudaError_t submit(FakeStream& stream, Submission& submission, Lock& lock) {
  if (const cudaError_t refusal = refuse_use(stream); refusal != cudaSuccess) return refusal;
  if (stream.capture) {
    record(stream, std::move(submission));
    return cudaSuccess;
  }
  const std::vector<QueuePoint> after = order_next(stream);
  const Access access{next_stamp(stream.timeline, stream.clock), submission.name, call_site()};
  check_accesses(submission.ranges, access, stream.clock);
  count(submission.cost);
  const bool is_launch = submission.cost.launches > 0;
  if (is_launch && is_due(PlannedFault::sticky)) submission.work = fail_by_plan;
  trace("stream " + std::to_string(stream.timeline) + ": " + submission.name);
  push(stream.queue,
       {.name = submission.name, .work = std::move(submission.work), .after = after, .is_over_at = nullptr}, lock);
  return cudaSuccess;
}

}  // namespace lockstep::fake_gpu
