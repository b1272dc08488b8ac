// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "fake_gpu/nccl/call.hpp"
#include "fake_gpu/nccl/place.hpp"

namespace lockstep::fake_gpu::nccl {

constexpr int kMaxRanks = 64;
constexpr std::size_t kPieceBytes = 1 << 18;
constexpr std::size_t kNoteBytes = 512;

using Arrivals = std::array<std::atomic<std::uint32_t>, kMaxRanks>;

/// Ranks that meet again and again. What a rank laid down before it arrived, all read after the meeting. There are two
/// sides to lay it on, for a rank that is one meeting ahead of those that still read; none can be two ahead.
class Gate {
 public:
  Gate(Arrivals& arrivals, Position position) : arrivals_(arrivals), position_(position) {}

  /// The side of the meeting to which this rank comes next.
  std::size_t next_side() const { return (meetings_ + 1) % 2; }
  std::size_t side() const { return meetings_ % 2; }
  void arrive();
  /// Whether all ranks have come to the meeting at which this rank is.
  bool is_complete() const;
  /// Waits until the meeting is complete.
  /// @return  false: `stop` became true before
  bool wait(const std::atomic<bool>& stop) const;

 private:
  bool has_come(int rank) const;

  Arrivals& arrivals_;
  Position position_;
  std::uint32_t meetings_ = 0;
};

/// All that the ranks of one communicator share. Pages that nobody touches take no memory.
struct MeetingRegion {
  template <class T>
  using Sides = std::array<std::array<T, kMaxRanks>, 2>;

  Arrivals is_taken;
  Arrivals at_host_gate;
  Arrivals at_device_gate;
  Sides<std::array<std::byte, kNoteBytes>> notes;    ///< notes of host threads
  Sides<NcclCall> calls;                             ///< calls of streams, with the first piece of a collective
  Sides<std::array<std::byte, kPieceBytes>> pieces;  ///< pieces of streams
};

/// One rank among those that share a region. Two gates, because host threads and streams meet independently.
class NcclMeeting {
 public:
  /// @throws Refusal  the place is gone, or the rank is taken
  NcclMeeting(const Place& place, Position position);

  Position position() const { return position_; }
  MeetingRegion& region() { return *region_; }
  Gate& host_gate() { return host_gate_; }
  Gate& device_gate() { return device_gate_; }

  /// Lays down a note for the other host threads and comes to their next meeting.
  template <class Note>
  void post(const Note& note) {
    static_assert(std::is_trivially_copyable_v<Note> && sizeof(Note) <= kNoteBytes);
    std::memcpy(note_of(host_gate_.next_side(), position_.rank), &note, sizeof note);
    host_gate_.arrive();
  }
  /// The note of a rank, once the meeting is complete.
  template <class Note>
  Note posted_by(int rank) {
    Note note;
    std::memcpy(&note, note_of(host_gate_.side(), rank), sizeof note);
    return note;
  }

 private:
  std::byte* note_of(std::size_t side, int rank) { return region_->notes[side][static_cast<std::size_t>(rank)].data(); }

  Position position_;
  std::shared_ptr<MeetingRegion> region_;
  Gate host_gate_;
  Gate device_gate_;
};

}  // namespace lockstep::fake_gpu::nccl
