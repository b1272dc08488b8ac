// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/stream_marks.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <vector>

namespace lockstep::parallel {

namespace {

/// Through LibTorch's interface for all devices, so that nothing of CUDA is linked.
class EventMarks final : public StreamMarks {
 public:
  explicit EventMarks(const c10::Device& device) : device_(device), guard_(device.type()) {}

  StreamMark mark() override {
    const auto event = std::make_shared<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    event->record(guard_.getStream(device_));
    return event;
  }
  bool is_over(const StreamMark& mark) const override { return event_of(mark).query(); }
  double seconds_between(const StreamMark& begin, const StreamMark& end) const override {
    return event_of(begin).elapsedTime(event_of(end)) / 1000;
  }
  void wait(const StreamMark& mark) const override { event_of(mark).synchronize(); }

 private:
  static const c10::Event& event_of(const StreamMark& mark) { return *static_cast<const c10::Event*>(mark.get()); }

  c10::Device device_;
  c10::impl::VirtualGuardImpl guard_;
};

}  // namespace

std::unique_ptr<StreamMarks> make_stream_marks(const c10::Device& device) {
  if (device.is_cpu()) return nullptr;
  return std::make_unique<EventMarks>(device);
}

}  // namespace lockstep::parallel
