// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Survives reads of a mapped file that became shorter, for which the system sends SIGBUS: a page that cannot be read
/// is replaced by zeros, and its position is recorded. A handler for SIGBUS is installed with the first guard; faults
/// at other addresses have the effect that they had before.
class LostPages {
 public:
  /// Guards a mapping until this object is destroyed. If all slots for guards are used, it has no effect.
  explicit LostPages(std::span<const std::byte> mapping);
  ~LostPages();
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;

  /// The offset of the first page that was replaced; SIZE_MAX = none.
  std::size_t first() const noexcept;

 private:
  int slot_ = -1;
};

}  // namespace lockstep
