// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoints/format/transfer.hpp"

namespace lockstep::checkpoints {

/// A file in memory (/dev/shm) with room for one archive, for copies of a state that are made often. Its pages are kept
/// from one copy to the next, and several processes of a host can fill it together, so that a copy costs little more
/// than to move the bytes once.
///
/// One process begins and completes a copy; those that fill it do so in between. Until a copy is complete, the slot
/// counts as empty. Nothing is made durable.
class MemorySlot {
 public:
  /// @param path  of the file, which need not exist
  explicit MemorySlot(std::string path);
  MemorySlot(const MemorySlot&) = delete;
  MemorySlot& operator=(const MemorySlot&) = delete;
  ~MemorySlot();

  /// Empties the slot and gives it room for the archive.
  /// @throws CheckpointError  there is not so much memory
  void begin(const Archive& archive);
  /// Copies a part of the bytes. Waits for bytes that have not arrived.
  /// @param archive  with arrays of the same sizes as that of `begin`
  /// @throws CheckpointError  the file cannot be mapped
  void fill(const Archive& archive, FilePart part);
  /// Makes it the copy of `step`, when all parts are filled.
  void complete(std::int64_t step);

 private:
  void map(std::size_t bytes);
  bool is_there() const noexcept;
  void unmap() noexcept;

  std::string path_;
  int file_ = -1;
  std::span<std::byte> memory_;
  std::vector<std::byte> tree_;  // encoded by `begin`
  std::size_t tree_offset_ = 0;
};

/// The step of the copy in a slot; none if the slot is empty, does not exist, or was damaged. Checks all but the bytes
/// of the arrays.
std::optional<std::int64_t> step_in_slot(const std::string& path) noexcept;

/// Empties a slot. Its memory is kept.
void empty_slot(const std::string& path) noexcept;

/// The archive in a slot. Its arrays borrow the memory of the slot: nothing may begin a copy there while it is used.
/// @throws CheckpointError  the slot has none
Archive read_slot(const std::string& path);

/// The bytes of a slot, for another host.
/// @throws CheckpointError  it is empty, or a copy was begun there meanwhile
std::vector<std::byte> slot_bytes(const std::string& path);
/// Replaces the content of a slot by the bytes of another one.
/// @throws CheckpointError  there is not so much memory
void put_slot_bytes(const std::string& path, std::span<const std::byte> bytes);

}  // namespace lockstep::checkpoints
