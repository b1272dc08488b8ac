// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi/host/backends.hpp"
#include "mpi/shared/ordered_collectives.hpp"
#include "support/testing_collectives.hpp"

namespace lockstep::testing {

namespace {

using mpi::CallKind;
using mpi::Job;
using mpi::Slice;

class FakeCollectives final : public mpi::OrderedCollectives {
 public:
  FakeCollectives(int rank, int world_size) : OrderedCollectives(rank, world_size) {}

  std::string_view name() const noexcept override { return "fake"; }

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

  void perform(const Job& job) override {
    const std::size_t count = job.call.count;
    switch (job.call.kind) {
      case CallKind::all_reduce:
        return reduce(arrays(job, 0), std::span(&job.values, 1), count, job.reduction());
      case CallKind::reduce_scatter: {
        const Slice slice = mpi::slice_of(count, rank(), world_size(), job.element_bytes());
        return reduce(arrays(job, slice.begin), std::span(&job.result, 1), slice.count, job.reduction());
      }
      case CallKind::all_gather:
        for (int peer = 0; peer < world_size(); ++peer) std::copy_n(job.values, count, job.result + peer * count);
        return;
      case CallKind::reduce_ranges:
      case CallKind::broadcast:
      case CallKind::barrier:
      case CallKind::allocate_bucket:
      case CallKind::split:
      case CallKind::replay:
        return;
    }
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
      for (std::size_t node = 0; node < job.nodes_of(peer); ++node) {
        arrays_.push_back(job.values + node * job.node_bytes() + begin * job.element_bytes());
      }
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
