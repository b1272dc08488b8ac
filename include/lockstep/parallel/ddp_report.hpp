// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// The times of one bucket in a step on one rank, in seconds since the start of the step.
struct BucketTimes {
  double ready = 0;        ///< time when its last gradient was complete
  double launched = 0;     ///< time when its reduction was started; buckets are launched in order
  double wait_begin = 0;   ///< start of the time in which this rank only waited for the reduction
  double wait_end = 0;     ///< end of that time. Where gradients are reduced
                           ///< whole, or travel as messages, that happens meanwhile
  double visit_begin = 0;  ///< start of the time in which this rank's part was reduced
  double visit_end = 0;    ///< end of that time; the part was also applied, piece by piece
  double transfer = 0;     ///< seconds in which it read and reduced the peers' memory for that
  double update = 0;       ///< seconds in which the optimizer used the result: norm and rule
};

/// The times of one step on one rank, from the first forward to the end of the update, without the waiting for data
/// between forwards, in seconds since the start of the step.
struct StepTimeline {
  double backward_end = 0;   ///< moment
  double meeting_begin = 0;  ///< start of the last wait for all other ranks
  double meeting_end = 0;    ///< end of that wait, usually for the others' updates
  double end = 0;            ///< moment
  double meetings = 0;       ///< seconds of all such waits, and of the buffers' synchronization
  /// Seconds of the update that are not divided by buckets: all of them on a GPU, where BucketTimes::update and
  /// BucketTimes::transfer are 0, and the time of a transfer that nothing hides is part of the wait.
  double undivided_update = 0;
  std::vector<BucketTimes> buckets;

  // The step's seconds: end = compute + update + wait + transfer.
  double update() const;
  double wait() const;
  double transfer() const;
  double compute() const { return end - update() - wait() - transfer(); }
  /// The time of communication that does not overlap with computation.
  double exposed() const { return wait() + transfer(); }
};

/// The times of training steps. See DistributedDataParallel::report.
struct DdpReport {
  std::int64_t steps = 0;           ///< number of measured steps; 0 = too few
  bool is_of_gpu = false;           ///< times of the work in the GPU's stream; false = of the threads on the host
  std::vector<StepTimeline> ranks;  ///< a step with median duration for each rank
};

/// The rank with the longest step time without waits; the others wait for it. The complete step time is the same on all
/// ranks, because they wait for each other in each step.
std::size_t slowest_rank(const DdpReport& report);

/// A sentence that states what limits the step time of the slowest rank: "compute-bound; communication exposed 3 % (a
/// step of 13.90 ms: compute 12.10, update 1.40, wait 0.10, transfer 0.30)". The limit is the maximum of compute,
/// update and exposed communication. Times of a GPU have no transfer.
std::string bound_sentence(const DdpReport& report);

/// A table and a timeline of a step of the slowest rank for a terminal, several lines without a final newline. If there
/// are more than 16 buckets, those in the middle are omitted. "" for one rank or without steps.
std::string timeline_text(const DdpReport& report);

}  // namespace lockstep::parallel
