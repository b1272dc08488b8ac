// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/pending_all_gather.hpp"

#include <utility>

namespace lockstep::mpi {

PendingAllGather::PendingAllGather(const Communicator& world, std::vector<double> mine)
    : gathering_(std::make_unique<Gathering>()) {
  const auto count = static_cast<int>(mine.size());
  gathering_->all.resize(mine.size() * static_cast<std::size_t>(world.size()));
  gathering_->mine = std::move(mine);
  if (world.handle() == MPI_COMM_NULL) {  // this process alone: the request stays the one that is always complete
    gathering_->all = gathering_->mine;
    return;
  }
  check(MPI_Iallgather(gathering_->mine.data(), count, MPI_DOUBLE, gathering_->all.data(), count, MPI_DOUBLE,
                       world.handle(), &gathering_->request),
        "MPI_Iallgather");
}

PendingAllGather::~PendingAllGather() {
  // MPI may still write there, and a collective cannot be canceled.
  if (gathering_ && gathering_->request != MPI_REQUEST_NULL) static_cast<void>(gathering_.release());
}

PendingAllGather::PendingAllGather(PendingAllGather&& other) noexcept = default;

PendingAllGather& PendingAllGather::operator=(PendingAllGather&& other) noexcept {
  std::swap(gathering_, other.gathering_);
  return *this;
}

bool PendingAllGather::is_done() {
  if (gathering_->request == MPI_REQUEST_NULL) return true;
  int is_complete = 0;
  check(MPI_Test(&gathering_->request, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
  return is_complete != 0;
}

std::span<const double> PendingAllGather::wait() {
  if (gathering_->request == MPI_REQUEST_NULL) return gathering_->all;
  check(MPI_Wait(&gathering_->request, MPI_STATUS_IGNORE), "MPI_Wait");
  return gathering_->all;
}

}  // namespace lockstep::mpi
