// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <cstdint>
#include <string>

namespace lockstep::engine {

/// The division of the time of a run into steps and the time between them. Times are seconds of one clock with any
/// zero.
class RunClock {
 public:
  /// @param warmup  first steps that are left out of the speed, >= 0
  explicit RunClock(std::int64_t warmup) : warmup_(warmup) {}

  void begin(double now) { begin_ = now; }
  /// @param seconds       that the step itself took
  /// @param data_seconds  of which it waited for data
  void step(double seconds, double data_seconds);

  /// "1000 steps in 0:00:10 (0.0100 s a step, 3 % of it waiting for data)"; empty = none was counted.
  std::string speed() const;
  /// "0:00:12 (0:00:02 in hooks)": all of it.
  std::string total(double now) const;

 private:
  std::int64_t warmup_;
  std::int64_t steps_ = 0;
  double begin_ = 0;
  double seconds_ = 0;          // seconds of all steps
  double counted_seconds_ = 0;  // seconds of the steps after warmup_
  double data_seconds_ = 0;     // part of counted_seconds_ spent waiting for data
};

/// The times of some steps of one rank, and the samples that it used in them.
struct LoadingTimes {
  double seconds = 0;          ///< duration of the steps
  double data_seconds = 0;     ///< part of `seconds` spent waiting for data
  double loading_seconds = 0;  ///< time that all loader threads spent on samples
  std::int64_t samples = 0;    ///< samples that this rank used

  /// Part of the time spent waiting for data, in [0, 1].
  double wait_share() const { return seconds > 0 ? data_seconds / seconds : 0; }
  /// Samples per second that this number of threads can load; 0 = not known.
  double loaded_per_second(int threads) const;
  /// The smallest number of loader threads that load as many samples as the model uses when it never waits, at least 1.
  int threads_needed() const;
};

/// "the model waits for data 31.0% of the time: 2 loader threads give 1040 samples/s, 3 are needed (data.workers)"
/// @param threads     loader threads of a rank; 0 = the training thread loads its batches
/// @param processors  that a rank can use
/// @param ranks       of which the rate is the sum
std::string data_wait_sentence(const LoadingTimes& times, int threads, int processors, int ranks);

/// "; a sample takes 1.92 ms: 4% reading, 71% decoding, 25% transforms"; empty if no sample was measured.
std::string load_times_text(const data::LoadTimes& times);

/// "chunks of this rank: 1.27 bytes were unpacked for each byte that samples used"; empty if no chunk was read.
std::string chunk_bytes_text(const data::ChunkBytes& bytes);

}  // namespace lockstep::engine
