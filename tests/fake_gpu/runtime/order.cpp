// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/order.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>

#include "fake_gpu/runtime/memory.hpp"
#include "fake_gpu/runtime/report.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Order {
  Timeline timelines = 0;
  VectorClock latest;
  Accesses accesses;
};

Order& order() {
  static Order& only = *new Order;
  return only;
}

std::string quoted(const char* name) { return "'" + std::string(name) + "'"; }

std::string bytes_at(std::uintptr_t begin, std::uintptr_t end) {
  char text[64];
  std::snprintf(text, sizeof(text), "%zu bytes at %p", end - begin, reinterpret_cast<const void*>(begin));
  return text;
}

void print_caller(const Access& access) {
  std::fprintf(stderr, "  %s was queued by\n", quoted(access.name).c_str());
  print(access.site);
}

[[noreturn]] void report_race(const Range& range, const Access& access, const Conflict& conflict) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  const std::string bytes = bytes_at(std::max(begin, conflict.begin), std::min(begin + range.bytes, conflict.end));
  report("race: " + quoted(access.name) + (range.is_write ? " writes " : " reads ") + bytes + " that " +
         quoted(conflict.earlier.name) + (conflict.is_write ? " writes" : " reads") +
         ", and no stream, event or wait orders the two");
  print_caller(conflict.earlier);
  print_caller(access);
  end_process();
}

[[noreturn]] void report_freed(const Range& range, const Access& access) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  report(quoted(access.name) + (range.is_write ? " writes " : " reads ") + bytes_at(begin, begin + range.bytes) +
         ", which are not allocated");
  print_caller(access);
  end_process();
}

}  // namespace

Timeline new_timeline() { return ++order().timelines; }

Stamp next_stamp(Timeline timeline, VectorClock& clock) {
  const Stamp next{.timeline = timeline, .time = order().latest.at(timeline) + 1};
  order().latest.raise(next);
  clock.raise(next);
  return next;
}

const VectorClock& latest_stamps() { return order().latest; }

void check_accesses(const std::vector<Range>& ranges, const Access& access, const VectorClock& clock) {
  for (const Range& range : ranges) {
    const MemoryState state = state_of(range);
    if (state == MemoryState::freed) report_freed(range, access);
    if (state == MemoryState::not_ours) continue;
    if (const auto conflict = order().accesses.add(range, access, clock)) report_race(range, access, *conflict);
  }
}

void forget_accesses(const void* begin, std::size_t bytes) { order().accesses.forget(begin, bytes); }

}  // namespace lockstep::fake_gpu
