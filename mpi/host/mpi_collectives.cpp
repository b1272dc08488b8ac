// SPDX-License-Identifier: BSD-3-Clause
// Plain MPI, for any number of hosts.
#include <utility>

#include "mpi/host/backends.hpp"
#include "mpi/shared/messages.hpp"
#include "mpi/shared/ordered_collectives.hpp"

namespace lockstep::mpi {

namespace {

class MpiCollectives final : public OrderedCollectives {
 public:
  MpiCollectives(Communicator comm, const WaitOptions& options)
      : OrderedCollectives(comm.rank(), comm.size()), messages_(std::move(comm), options), options_(options) {}

  std::string_view name() const noexcept override { return "mpi"; }

 protected:
  BucketMemory allocate(std::size_t bytes) override { return allocate_private_bucket(bytes); }
  std::unique_ptr<Collectives> make_part(int color) override {
    return make_mpi_collectives(messages_.comm().split(color, rank()), options_);
  }

  void perform(const Job& job) override {
    messages_.meet(job);
    switch (job.call.kind) {
      case CallKind::all_reduce:
      case CallKind::reduce_ranges:
        return messages_.all_reduce(job);
      case CallKind::reduce_scatter:
        return messages_.reduce_scatter(job);
      case CallKind::broadcast:
        return messages_.broadcast(job);
      case CallKind::all_gather:
        return messages_.all_gather(job);
      case CallKind::barrier:
      case CallKind::allocate_bucket:
      case CallKind::split:
      case CallKind::replay:
        return;  // all have come: that is all
    }
  }

 private:
  Messages messages_;
  WaitOptions options_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<MpiCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
