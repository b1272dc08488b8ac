// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "mpi/backends.hpp"
#include "mpi/ordered_collectives.hpp"
#include "mpi/testing_collectives.hpp"

namespace lockstep::mpi {

namespace {

class FakeCollectives final : public OrderedCollectives {
 public:
  FakeCollectives(int rank, int world_size) : OrderedCollectives(rank, world_size) {}

  std::string_view name() const noexcept override { return "fake"; }

 protected:
  BucketMemory allocate(std::size_t bytes) override { return allocate_private_bucket(bytes); }
  std::unique_ptr<Collectives> make_part(int) override { return make_fake_collectives(world_size(), rank()); }

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
      case Kind::all_reduce:
        return reduce(arrays(job, 0), std::span(&job.values, 1), count, job.reduction());
      case Kind::reduce_scatter: {
        const Slice slice = slice_of(count, rank(), world_size(), job.element_bytes());
        return reduce(arrays(job, slice.begin), std::span(&job.result, 1), slice.count, job.reduction());
      }
      case Kind::all_gather:
        for (int peer = 0; peer < world_size(); ++peer) std::copy_n(job.values, count, job.result + peer * count);
        return;
      case Kind::reduce_ranges:
      case Kind::broadcast:
      case Kind::barrier:
      case Kind::allocate_bucket:
      case Kind::split:
      case Kind::replay:
        return;
    }
  }

  void open(const Job&) override {}

  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
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

std::unique_ptr<Collectives> make_fake_collectives(int world_size, int rank) {
  if (rank < 0 || rank >= world_size) {
    throw std::logic_error("comm: a fake rank " + std::to_string(rank) + " of " + std::to_string(world_size));
  }
  return std::make_unique<FakeCollectives>(rank, world_size);
}

}  // namespace lockstep::mpi
