// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <memory>

namespace c10 {
struct Device;
}

namespace lockstep::parallel {

/// Marks in the work of a device. The time of a mark is known when the device has passed it.
class StreamMarks {
 public:
  using StreamMark = std::shared_ptr<void>;

  virtual ~StreamMarks() = default;
  /// Puts a mark behind all work that the current stream of this thread has so far.
  virtual StreamMark mark() = 0;
  /// Whether the device has passed it. Does not wait.
  virtual bool is_over(const StreamMark& mark) const = 0;
  /// Both marks are over.
  virtual double seconds_between(const StreamMark& begin, const StreamMark& end) const = 0;
  /// Has the host wait until the device has passed it.
  virtual void wait(const StreamMark& mark) const = 0;
};

/// @return  null for the CPU
std::unique_ptr<StreamMarks> make_stream_marks(const c10::Device& device);

}  // namespace lockstep::parallel
