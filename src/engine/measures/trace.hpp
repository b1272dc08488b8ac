// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lockstep::engine {

/// Something that took time.
struct Span {
  std::string name;
  std::int64_t thread = 0;  ///< 0 = the step and its sections; then one number for each thread or stream
  double begin = 0;         ///< microseconds since 1970
  double end = 0;
};

/// Threads from here on are streams of a GPU: kFirstStream + the number of the stream.
inline constexpr std::int64_t kFirstStream = 1'000'000;

/// Microseconds since 1970, never running backwards inside a process.
double trace_now();

/// The spans of one rank as events of the Chrome trace format, separated by commas, without the brackets around: those
/// of several ranks become one file by trace_file.
/// @param rank  whose lane (pid) they are in
std::string trace_events(const std::vector<Span>& spans, int rank);

/// @param events  by rank, as trace_events gives them; empty ones are skipped
std::string trace_file(const std::vector<std::string>& events);

/// Microseconds by name, without those of the spans that lie inside a span of the same thread.
std::map<std::string, double> self_times(std::vector<Span> spans);

/// While one lives, every operator that LibTorch runs on any thread of this process is noted, those of the backward
/// pass too. One at a time.
class OperatorTrace {
 public:
  /// @param most  spans kept; later ones are only counted
  /// @throws std::logic_error  there is one already
  explicit OperatorTrace(std::size_t max);
  ~OperatorTrace();
  OperatorTrace(const OperatorTrace&) = delete;
  OperatorTrace& operator=(const OperatorTrace&) = delete;

  /// Takes the spans recorded so far.
  std::vector<Span> take();
  std::size_t dropped() const;

  class Spans;  // shared with operators that still run when the trace ends

 private:
  std::shared_ptr<Spans> spans_;
  std::uint64_t handle_ = 0;
};

}  // namespace lockstep::engine
