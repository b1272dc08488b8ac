// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/events.hpp"

#include <set>

#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/host.hpp"

namespace lockstep::fake_gpu {

namespace {

std::set<FakeEvent*>& events() {
  static auto& live = *new std::set<FakeEvent*>;
  return live;
}

bool has_time(const FakeEvent& event) { return event.mark != nullptr && (event.flags & cudaEventDisableTiming) == 0; }

}  // namespace

FakeEvent& make_event(int device, unsigned flags) {
  auto* const made = new FakeEvent{.device = device, .flags = flags, .mark = {}, .capture = {}, .frontier = {}};
  events().insert(made);
  return *made;
}

void destroy(FakeEvent& event) {
  events().erase(&event);
  delete &event;
}

FakeEvent* find_event(cudaEvent_t handle) {
  auto* const event = reinterpret_cast<FakeEvent*>(handle);
  return events().count(event) > 0 ? event : nullptr;
}

cudaError_t record_event(FakeEvent& event, FakeStream& stream, Lock& lock) {
  if (event.device != stream.device) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t refusal = refuse_use(stream); refusal != cudaSuccess) return refusal;
  event.capture = stream.capture;
  event.frontier = stream.frontier;
  event.mark = nullptr;
  if (stream.capture) return cudaSuccess;
  const std::vector<QueuePoint> after = order_next(stream);
  const auto mark =
      std::make_shared<EventMark>(EventMark{.point = {.queue = &stream.queue, .index = stream.queue.queued + 1},
                                            .clock = stream.clock,
                                            .instant = std::make_shared<Instant>()});
  event.mark = mark;
  push(stream.queue, {.name = "event", .work = {}, .after = after, .is_over_at = mark->instant}, lock);
  return cudaSuccess;
}

cudaError_t wait_in_stream(FakeStream& stream, const FakeEvent& event, Lock& lock) {
  if (event.capture) return join(stream, event);
  if (const cudaError_t refusal = refuse_use(stream); refusal != cudaSuccess) return refusal;
  if (!event.mark) return cudaSuccess;
  if (stream.capture) return refuse_event_from_before(stream);
  std::vector<QueuePoint> after = order_next(stream);
  after.push_back(event.mark->point);
  stream.clock.join(event.mark->clock);
  push(stream.queue, {.name = "wait for an event", .work = {}, .after = after, .is_over_at = nullptr}, lock);
  return cudaSuccess;
}

cudaError_t query_event(const FakeEvent& event) {
  if (const cudaError_t refusal = refuse_wait(event); refusal != cudaSuccess) return refusal;
  const auto mark = event.mark;
  if (!mark) return cudaSuccess;
  want(mark->point);
  if (!is_over(mark->point)) return cudaErrorNotReady;
  learn(mark->clock);
  return device_status();
}

cudaError_t wait_on_host(const FakeEvent& event, Lock& lock) {
  if (const cudaError_t refusal = refuse_wait(event); refusal != cudaSuccess) return refusal;
  const auto mark = event.mark;
  if (!mark) return cudaSuccess;
  await({mark->point}, lock);
  wait_for(mark->clock);
  return device_status();
}

cudaError_t elapsed_ms(const FakeEvent& begin, const FakeEvent& end, float* milliseconds) {
  if (begin.capture || end.capture) return cudaErrorCapturedEvent;
  if (!has_time(begin) || !has_time(end)) return cudaErrorInvalidResourceHandle;
  if (!is_over(begin.mark->point) || !is_over(end.mark->point)) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(*end.mark->instant - *begin.mark->instant).count();
  return device_status();
}

}  // namespace lockstep::fake_gpu
