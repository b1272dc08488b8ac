// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <utility>
#include <vector>

#include "core/system/memory.hpp"
#include "mpi/host/backends.hpp"
#include "mpi/shared/ordered_collectives.hpp"

namespace lockstep::mpi {

namespace {

/// One rank: the result of a reduction is what it is given.
class SelfCollectives final : public OrderedCollectives {
 public:
  SelfCollectives() : OrderedCollectives(0, 1) {}

  std::string_view name() const noexcept override { return "self"; }

 protected:
  BucketMemory allocate(std::size_t bytes) override { return allocate_private_bucket(bytes); }
  std::unique_ptr<Collectives> make_part(int) override { return make_self_collectives(); }

  void perform(const Job& job) override {
    const std::size_t count = job.call.count;
    if (job.call.kind == CallKind::all_gather) std::copy_n(job.values, count, job.result);
    if (job.call.kind == CallKind::reduce_scatter) std::copy_n(job.values, count * job.element_bytes(), job.result);
    if (job.tree != nullptr) reduce(arrays(job, 0), std::span(&job.values, 1), count, job.reduction());
  }

  void open(const Job&) override {}

  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    if (job.tree == nullptr) return hand_over(job.values, job, range, consume);
    reduce_pieces(job, range, consume, [&](std::size_t begin) { return arrays(job, begin); });
  }

 private:
  /// Element `begin` of every node.
  std::span<const std::byte* const> arrays(const Job& job, std::size_t begin) {
    arrays_.clear();
    for (std::size_t node = 0; node < job.nodes_of(0); ++node) {
      arrays_.push_back(job.values + node * job.node_bytes() + begin * job.element_bytes());
    }
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
