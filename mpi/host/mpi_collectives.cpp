// SPDX-License-Identifier: BSD-3-Clause
// Plain MPI, for any number of hosts.
#include <utility>

#include "mpi/host/host_collectives.hpp"
#include "mpi/shared/messages.hpp"

namespace lockstep::mpi {

namespace {

class MpiCollectives final : public HostCollectives {
 public:
  MpiCollectives(Communicator comm, const WaitOptions& options)
      : HostCollectives(RankFacts{.name = "mpi", .rank = comm.rank(), .world_size = comm.size()}),
        messages_(std::move(comm), options),
        options_(options) {}

 protected:
  BucketMemory allocate(std::size_t bytes) override { return allocate_private_bucket(bytes); }
  std::unique_ptr<Collectives> make_part(int color) override {
    return make_mpi_collectives(messages_.comm().split(color, rank()), options_);
  }

  void await_all(const Job& job) override { messages_.meet(job); }
  void perform_all_reduce(const Job& job) override { messages_.all_reduce(job); }
  void perform_reduce_scatter(const Job& job) override { messages_.reduce_scatter(job); }
  void perform_broadcast(const Job& job) override { messages_.broadcast(job); }
  void perform_all_gather(const Job& job) override { messages_.all_gather(job); }

 private:
  Messages messages_;
  WaitOptions options_;
};

}  // namespace

std::unique_ptr<Collectives> make_mpi_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<MpiCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
