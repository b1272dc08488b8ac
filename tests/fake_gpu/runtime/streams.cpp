// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/streams.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "fake_gpu/runtime/devices.hpp"
#include "fake_gpu/runtime/host.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Streams {
  std::set<FakeStream*> live;
  std::map<int, FakeStream*> legacy;  ///< legacy stream of each device
};

Streams& streams() {
  static Streams& only = *new Streams;
  return only;
}

FakeStream& legacy_stream(int device) {
  FakeStream*& stream = streams().legacy[device];
  if (stream == nullptr) {
    stream = &make_stream(device, cudaStreamDefault, 0);
    stream->is_legacy = true;
  }
  return *stream;
}

/// Each thread has one per device; it is an ordinary blocking stream.
FakeStream& stream_of_thread(int device) {
  thread_local std::map<int, FakeStream*> own;
  FakeStream*& stream = own[device];
  if (stream == nullptr) stream = &make_stream(device, cudaStreamDefault, 0);
  return *stream;
}

bool is_blocking(const FakeStream& stream) { return !stream.is_legacy && (stream.flags & cudaStreamNonBlocking) == 0; }

std::vector<QueuePoint> ends_of(const std::vector<FakeStream*>& some) {
  std::vector<QueuePoint> ends;
  for (FakeStream* const stream : some) ends.push_back(end_of(stream->queue));
  return ends;
}

VectorClock clocks_of(const std::vector<FakeStream*>& some) {
  VectorClock all;
  for (const FakeStream* const stream : some) all.join(stream->clock);
  return all;
}

}  // namespace

FakeStream& make_stream(int device, unsigned flags, int priority) {
  auto* const made = new FakeStream;  // never destroyed: points refer to its queue
  made->device = device;
  made->flags = flags;
  made->priority = priority;
  streams().live.insert(made);
  return *made;
}

void destroy(FakeStream& stream) {
  streams().live.erase(&stream);
  close(stream.queue);
}

FakeStream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_stream(current_device());
  if (handle == cudaStreamPerThread) return &stream_of_thread(current_device());
  auto* const stream = reinterpret_cast<FakeStream*>(handle);
  return streams().live.count(stream) > 0 ? stream : nullptr;
}

std::vector<FakeStream*> streams_of(int device) {
  std::vector<FakeStream*> some;
  std::copy_if(streams().live.begin(), streams().live.end(), std::back_inserter(some),
               [device](const FakeStream* stream) { return stream->device == device; });
  return some;
}

std::vector<FakeStream*> implied_by(const FakeStream& stream) {
  if (is_blocking(stream)) return {&legacy_stream(stream.device)};
  if (!stream.is_legacy) return {};
  std::vector<FakeStream*> blocking = streams_of(stream.device);
  std::erase_if(blocking, [](const FakeStream* other) { return !is_blocking(*other); });
  return blocking;
}

std::vector<FakeStream*> encompassed_by(FakeStream& stream) {
  std::vector<FakeStream*> all{&stream};
  if (stream.is_legacy) {
    const std::vector<FakeStream*> blocking = implied_by(stream);
    all.insert(all.end(), blocking.begin(), blocking.end());
  }
  return all;
}

std::vector<QueuePoint> order_next(FakeStream& stream) {
  const std::vector<FakeStream*> earlier = implied_by(stream);
  stream.clock.join(host_clock());
  stream.clock.join(clocks_of(earlier));
  return ends_of(earlier);
}

void wait_for(const std::vector<FakeStream*>& some, Lock& lock) {
  const VectorClock clock = clocks_of(some);
  await(ends_of(some), lock);
  wait_for(clock);
}

void await_unnoticed(const std::vector<FakeStream*>& some, Lock& lock) {
  const VectorClock clock = clocks_of(some);
  await(ends_of(some), lock);
  count_wait(clock);
}

bool are_idle(const std::vector<FakeStream*>& some) {
  const std::vector<QueuePoint> ends = ends_of(some);
  for (const QueuePoint& end : ends) want(end);
  if (!std::all_of(ends.begin(), ends.end(), is_over)) return false;
  learn(clocks_of(some));
  return true;
}

}  // namespace lockstep::fake_gpu
