// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi/host/host_collectives.hpp"
#include "support/testing_collectives.hpp"

namespace lockstep::testing {

namespace {

using mpi::Job;
using mpi::Slice;

class FakeCollectives final : public mpi::HostCollectives {
 public:
  FakeCollectives(int rank, int world_size)
      : HostCollectives(RankFacts{.name = "fake", .rank = rank, .world_size = world_size}) {}

 protected:
  mpi::BucketMemory allocate(std::size_t bytes) override { return mpi::allocate_private_bucket(bytes); }
  std::unique_ptr<mpi::Collectives> make_part(int) override { return make_fake_collectives(world_size(), rank()); }

  void announce(const Job& job) override {
    for (int peer = 0; peer < world_size(); ++peer) {
      if (job.nodes_of(peer) == job.nodes_of(rank())) continue;
      throw std::logic_error("comm: rank " + std::to_string(peer) + " has different nodes from rank " +
                             std::to_string(rank()) + ", which a fake world cannot show");
    }
  }

  void perform_all_reduce(const Job& job) override {
    reduce(arrays(job, 0), std::span(&job.values, 1), job.call.count, job.reduction());
  }
  void perform_reduce_scatter(const Job& job) override {
    const Slice slice = mpi::slice_of(job.call.count, rank(), world_size(), job.element_bytes());
    reduce(arrays(job, slice.begin), std::span(&job.result, 1), slice.count, job.reduction());
  }
  void perform_broadcast(const Job&) override {}
  void perform_all_gather(const Job& job) override {
    const std::size_t count = job.call.count;
    for (int peer = 0; peer < world_size(); ++peer) std::copy_n(job.values, count, job.result + peer * count);
  }

  void open(const Job&) override {}

  void take(const Job& job, Slice range, const mpi::RangeConsumer& consume) override {
    reduce_pieces(job, range, consume, [&](std::size_t begin) { return arrays(job, begin); });
  }

 private:
  /// Element `begin` of the arrays of all ranks, which are this rank's.
  std::span<const std::byte* const> arrays(const Job& job, std::size_t begin) {
    arrays_.clear();
    for (int peer = 0; peer < world_size(); ++peer) {
      job.add_arrays(peer, job.values + begin * job.element_bytes(), job.node_bytes(), arrays_);
    }
    return arrays_;
  }

  std::vector<const std::byte*> arrays_;
};

}  // namespace

std::unique_ptr<mpi::Collectives> make_fake_collectives(int world_size, int rank) {
  if (rank < 0 || rank >= world_size) {
    throw std::logic_error("comm: a fake rank " + std::to_string(rank) + " of " + std::to_string(world_size));
  }
  return std::make_unique<FakeCollectives>(rank, world_size);
}

}  // namespace lockstep::testing
