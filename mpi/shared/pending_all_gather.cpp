// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/pending_all_gather.hpp"

#include <utility>

#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

class PendingAllGather::Impl {
 public:
  Impl(const Communicator& world, std::vector<double> mine)
      : mine_(std::move(mine)), all_(mine_.size() * static_cast<std::size_t>(world.size())) {
    const auto count = static_cast<int>(mine_.size());
    check(MPI_Iallgather(mine_.data(), count, MPI_DOUBLE, all_.data(), count, MPI_DOUBLE, world.handle(), &request_),
          "MPI_Iallgather");
  }

  bool is_done() {
    int is_complete = 0;
    check(MPI_Test(&request_, &is_complete, MPI_STATUS_IGNORE), "MPI_Test");
    return is_complete != 0;
  }

  std::span<const double> wait() {
    check(MPI_Wait(&request_, MPI_STATUS_IGNORE), "MPI_Wait");
    return all_;
  }

  bool is_pending() const noexcept { return request_ != MPI_REQUEST_NULL; }

 private:
  std::vector<double> mine_;
  std::vector<double> all_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

PendingAllGather::PendingAllGather(const Communicator& world, std::vector<double> mine)
    : impl_(std::make_unique<Impl>(world, std::move(mine))) {}

PendingAllGather::~PendingAllGather() {
  // MPI may still write there, and a collective cannot be canceled.
  if (impl_ && impl_->is_pending()) static_cast<void>(impl_.release());
}

PendingAllGather::PendingAllGather(PendingAllGather&& other) noexcept = default;

PendingAllGather& PendingAllGather::operator=(PendingAllGather&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

bool PendingAllGather::is_done() { return impl_->is_done(); }

std::span<const double> PendingAllGather::wait() { return impl_->wait(); }

}  // namespace lockstep::mpi
