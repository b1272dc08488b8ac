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
  std::set<Stream*> live;
  std::map<int, Stream*> legacy;  ///< legacy stream of each device
};

Streams& streams() {
  static Streams& only = *new Streams;
  return only;
}

Stream& legacy_stream(int device) {
  Stream*& stream = streams().legacy[device];
  if (stream == nullptr) {
    stream = &make_stream(device, cudaStreamDefault, 0);
    stream->is_legacy = true;
  }
  return *stream;
}

/// Each thread has one per device; it is an ordinary blocking stream.
Stream& stream_of_thread(int device) {
  thread_local std::map<int, Stream*> own;
  Stream*& stream = own[device];
  if (stream == nullptr) stream = &make_stream(device, cudaStreamDefault, 0);
  return *stream;
}

bool is_blocking(const Stream& stream) { return !stream.is_legacy && (stream.flags & cudaStreamNonBlocking) == 0; }

std::vector<Point> ends_of(const std::vector<Stream*>& some) {
  std::vector<Point> ends;
  for (Stream* const stream : some) ends.push_back(end_of(stream->queue));
  return ends;
}

Clock clocks_of(const std::vector<Stream*>& some) {
  Clock all;
  for (const Stream* const stream : some) all.join(stream->clock);
  return all;
}

}  // namespace

Stream& make_stream(int device, unsigned flags, int priority) {
  auto* const made = new Stream;  // never destroyed: points refer to its queue
  made->device = device;
  made->flags = flags;
  made->priority = priority;
  streams().live.insert(made);
  return *made;
}

void destroy(Stream& stream) {
  streams().live.erase(&stream);
  close(stream.queue);
}

Stream* find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &legacy_stream(current_device());
  if (handle == cudaStreamPerThread) return &stream_of_thread(current_device());
  auto* const stream = reinterpret_cast<Stream*>(handle);
  return streams().live.count(stream) > 0 ? stream : nullptr;
}

std::vector<Stream*> streams_of(int device) {
  std::vector<Stream*> some;
  std::copy_if(streams().live.begin(), streams().live.end(), std::back_inserter(some),
               [device](const Stream* stream) { return stream->device == device; });
  return some;
}

std::vector<Stream*> implied_by(const Stream& stream) {
  if (is_blocking(stream)) return {&legacy_stream(stream.device)};
  if (!stream.is_legacy) return {};
  std::vector<Stream*> blocking = streams_of(stream.device);
  std::erase_if(blocking, [](const Stream* other) { return !is_blocking(*other); });
  return blocking;
}

std::vector<Stream*> encompassed_by(Stream& stream) {
  std::vector<Stream*> all{&stream};
  if (stream.is_legacy) {
    const std::vector<Stream*> blocking = implied_by(stream);
    all.insert(all.end(), blocking.begin(), blocking.end());
  }
  return all;
}

std::vector<Point> order_next(Stream& stream) {
  const std::vector<Stream*> earlier = implied_by(stream);
  stream.clock.join(host_clock());
  stream.clock.join(clocks_of(earlier));
  return ends_of(earlier);
}

void wait_for(const std::vector<Stream*>& some, Lock& lock) {
  const Clock clock = clocks_of(some);
  await(ends_of(some), lock);
  wait_for(clock);
}

void await_unnoticed(const std::vector<Stream*>& some, Lock& lock) {
  const Clock clock = clocks_of(some);
  await(ends_of(some), lock);
  count_wait(clock);
}

bool are_idle(const std::vector<Stream*>& some) {
  const std::vector<Point> ends = ends_of(some);
  for (const Point& end : ends) want(end);
  if (!std::all_of(ends.begin(), ends.end(), is_over)) return false;
  learn(clocks_of(some));
  return true;
}

}  // namespace lockstep::fake_gpu
