// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/joining.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "fake_gpu/nccl/errors.hpp"
#include "fake_gpu/nccl/settings.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

/// Ranks tell each other, before they work together.
struct Introduction {
  int ranks = 0;
  char host[256] = {};
  char bus_id[32] = {};
};

Introduction introduce(int ranks, int device) {
  Introduction mine;
  mine.ranks = ranks;
  std::snprintf(mine.host, sizeof mine.host, "%s", host_id().c_str());
  check(cudaDeviceGetPCIBusId(mine.bus_id, sizeof mine.bus_id, device), "cudaDeviceGetPCIBusId");
  return mine;
}

bool is_same_gpu(const Introduction& a, const Introduction& b) {
  return std::strcmp(a.host, b.host) == 0 && std::strcmp(a.bus_id, b.bus_id) == 0;
}

void require_compatible(const std::vector<Introduction>& ranks) {
  for (std::size_t later = 1; later < ranks.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      if (ranks[later].ranks != ranks[earlier].ranks) {
        throw Refusal(ncclInvalidUsage, "The ranks of a communicator disagree about their number.");
      }
      if (!is_same_gpu(ranks[later], ranks[earlier])) continue;
      throw Refusal(ncclInvalidUsage, "Duplicate GPU detected : rank " + std::to_string(later) + " and rank " +
                                          std::to_string(earlier) + " both on CUDA device " + ranks[later].bus_id);
    }
  }
}

template <class Note>
std::vector<Note> all_notes(NcclMeeting& meeting) {
  std::vector<Note> notes;
  for (int rank = 0; rank < meeting.position().size; ++rank) notes.push_back(meeting.posted_by<Note>(rank));
  return notes;
}

struct Wish {
  int color = NCCL_SPLIT_NOCOLOR;
  int key = 0;
  int parent_rank = 0;
  Place place;  ///< made by every rank; that of the first rank of a color is used
};

/// The ranks of one color in the order of the new communicator.
std::vector<Wish> part_of(std::vector<Wish> wishes, int color) {
  std::erase_if(wishes, [color](const Wish& wish) { return wish.color != color; });
  std::sort(wishes.begin(), wishes.end(), [](const Wish& a, const Wish& b) {
    return std::tie(a.key, a.parent_rank) < std::tie(b.key, b.parent_rank);
  });
  return wishes;
}

int rank_in(const std::vector<Wish>& part, int parent_rank) {
  const auto mine = std::find_if(part.begin(), part.end(),
                                 [parent_rank](const Wish& wish) { return wish.parent_rank == parent_rank; });
  return static_cast<int>(mine - part.begin());
}

}  // namespace

Joining::Joining(const Place& place, Position position, int device)
    : place_(place), member_(std::make_shared<Member>(place, position)) {
  member_->meeting().post(introduce(position.size, device));
}

bool Joining::is_complete() {
  NcclMeeting& meeting = member_->meeting();
  if (!meeting.host_gate().is_complete()) return false;
  require_compatible(all_notes<Introduction>(meeting));
  return true;
}

FakeCommunicator::ProgressTest splitting(FakeCommunicator& parent, int color, int key, ncclComm_t* part,
                                         const FakeCommunicator::CommOptions& options) {
  NcclMeeting& meeting = parent.member().meeting();
  const Wish mine = {color, key, meeting.position().rank, make_place(sizeof(MeetingRegion))};
  meeting.post(mine);
  *part = NCCL_COMM_NULL;
  return [&meeting, mine, part, options, joining = std::shared_ptr<Joining>()]() mutable {
    if (joining == nullptr) {
      if (!meeting.host_gate().is_complete()) return false;
      const std::vector<Wish> members = part_of(all_notes<Wish>(meeting), mine.color);
      const Position position = {rank_in(members, mine.parent_rank), static_cast<int>(members.size())};
      if (mine.color == NCCL_SPLIT_NOCOLOR || position.rank != 0) release_place(mine.place);
      if (mine.color == NCCL_SPLIT_NOCOLOR) return true;
      joining = std::make_shared<Joining>(members.front().place, position, options.device);
    }
    if (!joining->is_complete()) return false;
    *part = handle_of(std::make_shared<FakeCommunicator>(joining->member(), options));
    return true;
  };
}

}  // namespace lockstep::fake_gpu::nccl
