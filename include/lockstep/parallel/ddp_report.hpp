// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::parallel {

/// What happened to one bucket in a step on one rank. Moments are in seconds since the step began.
struct BucketTimes {
  double ready = 0;        ///< moment when its last gradient was in it
  double launched = 0;     ///< moment when its reduction was started; buckets are launched in index order
  double wait_begin = 0;   ///< from here
  double wait_end = 0;     ///<   to here this rank did nothing but wait for it. Where gradients are reduced whole, or
                           ///<   travel as messages, that happens meanwhile
  double visit_begin = 0;  ///< from here
  double visit_end = 0;    ///<   to here this rank's part was reduced and applied, piece by piece
  double transfer = 0;     ///< seconds in which it read and reduced the peers' memory for that
  double update = 0;       ///< seconds in which the optimizer used the result: norm and rule
};

/// One step on one rank, from the first forward to the end of the update; what lies between its forwards (the wait for
/// data) is left out. Moments are in seconds since the step began.
struct StepTimeline {
  double backward_end = 0;   ///< moment
  double meeting_begin = 0;  ///< from here
  double meeting_end = 0;    ///<   to here it waited last until all others had come, usually with their updates
  double end = 0;            ///< moment
  double meetings = 0;       ///< seconds of all such waits, and of the buffers' synchronization
  std::vector<BucketTimes> buckets;

  // The step's seconds: end = compute + update + wait + transfer.
  double update() const;
  double wait() const;
  double transfer() const;
  double compute() const { return end - update() - wait() - transfer(); }
  /// What of communication is not hidden behind computing.
  double exposed() const { return wait() + transfer(); }
};

/// Where the time of training steps goes. See DistributedDataParallel::report.
struct DdpReport {
  std::int64_t steps = 0;           ///< the latest ones, of which those below are median ones; 0 = too few were made
  std::vector<StepTimeline> ranks;  ///< a step of median length of each rank
};

/// The rank that works longest, for which the others wait: the step without its waits is longest there. Steps
/// themselves take the same time everywhere, since ranks wait for each other in each.
std::size_t slowest_rank(const DdpReport& report);

/// What bounds the slowest rank's step, with the numbers that say so: "compute-bound; communication exposed 3 % (a step
/// of 13.90 ms: compute 12.10, update 1.40, wait 0.10, transfer 0.30)". The bound is the largest of compute, update and
/// exposed communication.
std::string bound_sentence(const DdpReport& report);

/// A table and an image of the slowest rank's step for a terminal, several lines without a last line end. Of more than
/// 16 buckets, those in the middle are left out. "" where there is nothing to show: one rank, or no steps.
std::string timeline_text(const DdpReport& report);

}  // namespace lockstep::parallel
