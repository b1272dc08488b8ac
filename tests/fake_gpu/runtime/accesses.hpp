// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/runtime/call_site.hpp"
#include "fake_gpu/runtime/clock.hpp"

namespace lockstep::fake_gpu {

/// An operation that reads or writes memory.
struct Access {
  Stamp stamp;
  const char* name = nullptr;
  CallFrames site = nullptr;
};

/// An earlier access to the same bytes, of which at least one is a write and which nothing orders.
struct Conflict {
  Access earlier;
  bool is_write = false;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

/// The last accesses to each byte. Its size does not grow with the number of accesses: a write replaces the entries of
/// its range by one, and a read those of the reads that are before it.
class Accesses {
 public:
  /// Adds an access.
  /// @param clock  what is before it, itself included
  std::optional<Conflict> add(const Range& range, const Access& access, const VectorClock& clock);
  void forget(const void* begin, std::size_t bytes);
  [[nodiscard]] std::size_t size() const { return cells_.size(); }

 private:
  struct AccessCell {
    std::uintptr_t end = 0;
    Access write;
    std::vector<Access> reads;
  };
  using Cells = std::map<std::uintptr_t, AccessCell>;  // cells by their first byte

  void split(std::uintptr_t position);
  void fill(std::uintptr_t begin, std::uintptr_t end);
  void merge(Cells::iterator first, Cells::iterator last);
  static std::optional<Conflict> conflict(const Cells::value_type& cell, bool is_write, const VectorClock& clock);

  Cells cells_;
};

}  // namespace lockstep::fake_gpu
