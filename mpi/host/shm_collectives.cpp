// SPDX-License-Identifier: BSD-3-Clause
// All ranks on one host. Every rank maps every rank's memory, so a reduction moves nothing: each rank sums its slice of
// all slots and writes the result into all slots. Values outside buckets pass through a staging slot per rank.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "mpi/host/host_collectives.hpp"
#include "mpi/host/host_memory.hpp"
#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

namespace {

std::vector<int> ranks_from_0(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class ShmCollectives final : public HostCollectives {
 public:
  ShmCollectives(Communicator host, const WaitOptions& options)
      : HostCollectives(RankFacts{.name = "shm",
                                  .rank = host.rank(),
                                  .world_size = host.size(),
                                  .local_rank = host.rank(),
                                  .local_size = host.size()}),
        options_(options),
        memory_(std::move(host), ranks_from_0(world_size()), options) {}

 protected:
  BucketMemory allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  std::unique_ptr<Collectives> make_part(int color) override {
    return make_shm_collectives(memory_.communicator().split(color, rank()), options_);
  }
  void announce(const Job& job) override { memory_.announce(job); }

  void await_all(const Job& job) override {
    const std::string fault = memory_.await_all(job);
    if (!fault.empty()) memory_.meeting().give_up(fault);
  }

  void finish(const Job& job) override { memory_.finish(job); }
  void settle(const Job& job) override { memory_.settle(job); }
  void notify_peers(const std::string& reason, ExitCode code) noexcept override {
    memory_.meeting().notify_peers(reason, code);
  }

  /// Values in buckets stay as they are: a request of a range reads all slots and writes to none.
  void open(const Job& job) override {
    await_all(job);
    if (memory_.find(job) != nullptr) return;
    memory_.reduce_staged(job, [&](const Arrays& arrays, std::size_t count) { reduce_slice(job, arrays, count); });
  }

  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    const Arrays* const arrays = memory_.find(job);
    if (arrays == nullptr) return hand_over(job.values, job, range, consume);
    reduce_pieces(job, range, consume, [&](std::size_t begin) -> std::span<const std::byte* const> {
      point_at(*arrays, job, begin * job.element_bytes());
      return sources_;
    });
  }

  void perform_all_reduce(const Job& job) override {
    memory_.reduce(job, [&](const Arrays& arrays, std::size_t count) { reduce_slice(job, arrays, count); });
  }

  void perform_reduce_scatter(const Job& job) override {
    const Arrays* const arrays = memory_.find(job);
    if (arrays == nullptr) return reduce_scatter_staged(job);
    const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
    point_at(*arrays, job, slice.begin * job.element_bytes());
    reduce(sources_, std::span(&job.result, 1), slice.count, job.reduction());
  }

  void perform_broadcast(const Job& job) override {
    const bool is_root = rank() == job.call.root;
    for_each_chunk(job.call.count, HostMemory::kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
      memory_.stage(job.values + begin, is_root ? bytes : 0, job);
      if (!is_root) std::memcpy(job.values + begin, memory_.staging(job.call.root), bytes);
      memory_.meeting().advance();
    });
  }

  void perform_all_gather(const Job& job) override {
    for_each_chunk(job.call.count, HostMemory::kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
      memory_.stage(job.values + begin, bytes, job);
      for (int peer = 0; peer < world_size(); ++peer) {
        std::memcpy(job.result + peer * job.call.count + begin, memory_.staging(peer), bytes);
      }
      memory_.meeting().advance();
    });
  }

 private:
  static_assert(Rendezvous::kPostings >= kMaxJobs);

  /// Reduces this rank's slice, for all ranks.
  void reduce_slice(const Job& job, const Arrays& arrays, std::size_t count) {
    const Slice slice = slice_of(count, rank(), world_size(), job.element_bytes());
    point_at(arrays, job, slice.begin * job.element_bytes());
    reduce(sources_, targets_, slice.count, job.reduction());
  }

  void reduce_scatter_staged(const Job& job) {
    const std::size_t element_bytes = job.element_bytes();
    const Slice slice = slice_of(job.call.count, rank(), world_size(), element_bytes);
    for_each_chunk(job.call.count, memory_.staged_elements(job), [&](std::size_t begin, std::size_t count) {
      memory_.stage(job.values + begin * element_bytes, count * element_bytes, job);
      const std::size_t first = std::max(begin, slice.begin);
      const std::size_t last = std::min(begin + count, slice.begin + slice.count);
      if (first < last) {
        std::byte* const result = job.result + (first - slice.begin) * element_bytes;
        point_at(memory_.staged(count * element_bytes), job, (first - begin) * element_bytes);
        reduce(sources_, std::span(&result, 1), last - first, job.reduction());
      }
      memory_.meeting().advance();
    });
  }

  /// Takes the arrays from byte `offset` on as the sources and targets of a reduction.
  void point_at(const Arrays& arrays, const Job& job, std::size_t offset) {
    sources_.clear();
    targets_.clear();
    for (int peer = 0; peer < world_size(); ++peer) {
      targets_.push_back(arrays.first[peer] + offset);
      job.add_arrays(peer, targets_.back(), arrays.node_bytes, sources_);
    }
  }

  WaitOptions options_;
  HostMemory memory_;
  std::vector<const std::byte*> sources_;  ///< sources of the current reduction: the arrays of all ranks
  std::vector<std::byte*> targets_;        ///< the first array of each rank, to write to
};

}  // namespace

std::unique_ptr<Collectives> make_shm_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<ShmCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
