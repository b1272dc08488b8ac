// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>
#include <vector>

#include "core/system/memory.hpp"
#include "mpi/host/host_collectives.hpp"

namespace lockstep::mpi {

namespace {

/// One rank: the result of a reduction is what it is given.
class SelfCollectives final : public HostCollectives {
 public:
  SelfCollectives() : HostCollectives(RankFacts{.name = "self"}) {}

 protected:
  BucketMemory allocate(std::size_t bytes) override { return allocate_private_bucket(bytes); }
  std::unique_ptr<Collectives> make_part(int) override { return make_self_collectives(); }

  void perform_all_reduce(const Job& job) override {
    if (job.tree != nullptr) reduce(arrays(job, 0), std::span(&job.values, 1), job.call.count, job.reduction());
  }
  void perform_reduce_scatter(const Job& job) override {
    std::copy_n(job.values, job.call.count * job.element_bytes(), job.result);
  }
  void perform_broadcast(const Job&) override {}
  void perform_all_gather(const Job& job) override { std::copy_n(job.values, job.call.count, job.result); }

  void open(const Job&) override {}

  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    if (job.tree == nullptr) return hand_over(job.values, job, range, consume);
    reduce_pieces(job, range, consume, [&](std::size_t begin) { return arrays(job, begin); });
  }

 private:
  /// Element `begin` of every node.
  std::span<const std::byte* const> arrays(const Job& job, std::size_t begin) {
    arrays_.clear();
    job.add_arrays(0, job.values + begin * job.element_bytes(), job.node_bytes(), arrays_);
    return arrays_;
  }

  std::vector<const std::byte*> arrays_;
};

}  // namespace

BucketMemory allocate_private_bucket(std::size_t bytes) {
  if (bytes == 0) return {};
  std::shared_ptr<std::byte> memory = zeroed_memory(bytes);
  std::byte* const begin = memory.get();
  return {.bytes = {begin, bytes}, .owner = std::move(memory)};
}

std::unique_ptr<Collectives> make_self_collectives() { return std::make_unique<SelfCollectives>(); }

}  // namespace lockstep::mpi
