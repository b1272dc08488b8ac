// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/accesses.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep::fake_gpu {

namespace {

bool are_same(const std::vector<Access>& some, const std::vector<Access>& others) {
  return std::equal(some.begin(), some.end(), others.begin(), others.end(),
                    [](const Access& one, const Access& other) { return one.stamp == other.stamp; });
}

}  // namespace

std::optional<Conflict> Accesses::add(const Range& range, const Access& access, const VectorClock& clock) {
  if (range.bytes == 0) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(range.begin);
  const std::uintptr_t end = begin + range.bytes;
  split(begin);
  split(end);
  fill(begin, end);
  const auto first = cells_.find(begin);
  const auto last = cells_.lower_bound(end);
  for (auto cell = first; cell != last; ++cell) {
    if (const auto found = conflict(*cell, range.is_write, clock)) return found;
  }
  if (range.is_write) {
    first->second = {.end = end, .write = access, .reads = {}};
    cells_.erase(std::next(first), last);
    return std::nullopt;
  }
  for (auto cell = first; cell != last; ++cell) {
    std::erase_if(cell->second.reads, [&clock](const Access& read) { return is_before(read.stamp, clock); });
    cell->second.reads.push_back(access);
  }
  merge(first, last);
  return std::nullopt;
}

void Accesses::forget(const void* begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  split(first);
  split(first + bytes);
  cells_.erase(cells_.lower_bound(first), cells_.lower_bound(first + bytes));
}

std::optional<Conflict> Accesses::conflict(const Cells::value_type& cell, bool is_write, const VectorClock& clock) {
  const auto& [begin, last] = cell;
  if (!is_before(last.write.stamp, clock)) return Conflict{last.write, true, begin, last.end};
  if (!is_write) return std::nullopt;
  const auto read = std::find_if(last.reads.begin(), last.reads.end(),
                                 [&clock](const Access& access) { return !is_before(access.stamp, clock); });
  return read == last.reads.end() ? std::nullopt : std::optional(Conflict{*read, false, begin, last.end});
}

/// A cell that has `position` inside becomes two.
void Accesses::split(std::uintptr_t position) {
  auto cell = cells_.upper_bound(position);
  if (cell == cells_.begin()) return;
  --cell;
  if (cell->first == position || cell->second.end <= position) return;
  cells_.emplace(position, cell->second);
  cell->second.end = position;
}

/// Bytes that nobody has accessed get a cell, too.
void Accesses::fill(std::uintptr_t begin, std::uintptr_t end) {
  for (auto next = cells_.lower_bound(begin); begin < end; ++next) {
    if (next == cells_.end() || next->first > begin) {
      const std::uintptr_t stop = next == cells_.end() ? end : std::min(end, next->first);
      next = cells_.emplace(begin, AccessCell{.end = stop, .write = {}, .reads = {}}).first;
    }
    begin = next->second.end;
  }
}

/// Neighbors with the same accesses become one cell.
void Accesses::merge(Cells::iterator first, Cells::iterator last) {
  for (auto next = std::next(first); next != last; next = std::next(first)) {
    const bool is_same =
        first->second.write.stamp == next->second.write.stamp && are_same(first->second.reads, next->second.reads);
    if (is_same) {
      first->second.end = next->second.end;
      cells_.erase(next);
    } else {
      first = next;
    }
  }
}

}  // namespace lockstep::fake_gpu
