// SPDX-License-Identifier: BSD-3-Clause
// All ranks on one host. Every rank maps every rank's memory, so a reduction moves nothing: each rank sums its slice of
// all slots and writes the result into all slots. Values outside buckets pass through a staging slot per rank.
#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "mpi/host/backends.hpp"
#include "mpi/host/host_memory.hpp"
#include "mpi/process/chunks.hpp"
#include "mpi/shared/ordered_collectives.hpp"

namespace lockstep::mpi {

namespace {

std::vector<int> ranks_from_0(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

class ShmCollectives final : public OrderedCollectives {
 public:
  ShmCollectives(Communicator host, const WaitOptions& options)
      : OrderedCollectives(host.rank(), host.size()),
        options_(options),
        memory_(std::move(host), ranks_from_0(world_size()), options),
        meeting_(memory_.meeting()) {}

  std::string_view name() const noexcept override { return "shm"; }
  int local_rank() const noexcept override { return rank(); }
  int local_size() const noexcept override { return world_size(); }

 protected:
  BucketMemory allocate(std::size_t bytes) override { return memory_.allocate(bytes); }
  std::unique_ptr<Collectives> make_part(int color) override {
    return make_shm_collectives(memory_.communicator().split(color, rank()), options_);
  }
  void announce(const Job& job) override { memory_.announce(job); }
  void perform(const Job& job) override;
  void settle(const Job& job) override;
  void notify_peers(const std::string& reason, ExitCode code) noexcept override { meeting_.notify_peers(reason, code); }
  void open(const Job& job) override;
  void take(const Job& job, Slice range, const RangeConsumer& consume) override;

 private:
  static_assert(Rendezvous::kPostings >= kMaxJobs);

  void await_all(const Job& job);
  void run(const Job& job);
  void all_reduce(const Job& job);
  void all_reduce_staged(const Job& job);
  void reduce_scatter(const Job& job);
  void reduce_scatter_staged(const Job& job);
  void broadcast(const Job& job);
  void all_gather(const Job& job);

  /// Takes the arrays from byte `offset` on as the sources and targets of a reduction.
  void point_at(const Arrays& arrays, const Job& job, std::size_t offset);

  WaitOptions options_;
  HostMemory memory_;
  Rendezvous& meeting_;
  std::vector<const std::byte*> sources_;                 ///< sources of the current reduction: the arrays of all ranks
  std::vector<std::byte*> targets_;                       ///< the first array of each rank, to write to
  std::array<std::uint64_t, kMaxJobs> progress_after_{};  ///< this rank's progress after each performed job
};

void ShmCollectives::perform(const Job& job) {
  await_all(job);
  run(job);
  meeting_.advance();
  progress_after_[job.call.sequence % kMaxJobs] = meeting_.progress();
}

void ShmCollectives::await_all(const Job& job) {
  const std::string fault = memory_.await_all(job);
  if (!fault.empty()) meeting_.give_up(fault);
}

void ShmCollectives::settle(const Job& job) {
  meeting_.await_progress(progress_after_[job.call.sequence % kMaxJobs], job.call);
}

/// Values in buckets stay as they are: a request of a range reads all slots and writes to none.
void ShmCollectives::open(const Job& job) {
  await_all(job);
  if (memory_.find(job) == nullptr) all_reduce_staged(job);
}

void ShmCollectives::take(const Job& job, Slice range, const RangeConsumer& consume) {
  const Arrays* const arrays = memory_.find(job);
  if (arrays == nullptr) return hand_over(job.values, job, range, consume);
  reduce_pieces(job, range, consume, [&](std::size_t begin) -> std::span<const std::byte* const> {
    point_at(*arrays, job, begin * job.element_bytes());
    return sources_;
  });
}

void ShmCollectives::run(const Job& job) {
  switch (job.call.kind) {
    case CallKind::all_reduce:
      return all_reduce(job);
    case CallKind::reduce_scatter:
      return reduce_scatter(job);
    case CallKind::broadcast:
      return broadcast(job);
    case CallKind::all_gather:
      return all_gather(job);
    case CallKind::reduce_ranges:  // is opened instead
    case CallKind::barrier:
    case CallKind::allocate_bucket:
    case CallKind::split:
    case CallKind::replay:
      return;  // all have come: that is all
  }
}

void ShmCollectives::all_reduce(const Job& job) {
  const Arrays* const arrays = memory_.find(job);
  if (arrays == nullptr) return all_reduce_staged(job);
  const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
  point_at(*arrays, job, slice.begin * job.element_bytes());
  reduce(sources_, targets_, slice.count, job.reduction());
}

void ShmCollectives::all_reduce_staged(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  for_each_chunk(job.call.count, memory_.staged_elements(job), [&](std::size_t begin, std::size_t count) {
    std::byte* const values = job.values + begin * element_bytes;
    memory_.stage(values, count * element_bytes, job);
    const Slice slice = slice_of(count, rank(), world_size(), element_bytes);
    point_at(memory_.staged(count * element_bytes), job, slice.begin * element_bytes);
    reduce(sources_, targets_, slice.count, job.reduction());
    memory_.meet(job);
    std::memcpy(values, memory_.staging(rank()), count * element_bytes);
  });
}

void ShmCollectives::reduce_scatter(const Job& job) {
  const Arrays* const arrays = memory_.find(job);
  if (arrays == nullptr) return reduce_scatter_staged(job);
  const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
  point_at(*arrays, job, slice.begin * job.element_bytes());
  reduce(sources_, std::span(&job.result, 1), slice.count, job.reduction());
}

void ShmCollectives::reduce_scatter_staged(const Job& job) {
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
    meeting_.advance();
  });
}

void ShmCollectives::broadcast(const Job& job) {
  const bool is_root = rank() == job.call.root;
  for_each_chunk(job.call.count, HostMemory::kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
    memory_.stage(job.values + begin, is_root ? bytes : 0, job);
    if (!is_root) std::memcpy(job.values + begin, memory_.staging(job.call.root), bytes);
    meeting_.advance();
  });
}

void ShmCollectives::all_gather(const Job& job) {
  for_each_chunk(job.call.count, HostMemory::kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
    memory_.stage(job.values + begin, bytes, job);
    for (int peer = 0; peer < world_size(); ++peer) {
      std::memcpy(job.result + peer * job.call.count + begin, memory_.staging(peer), bytes);
    }
    meeting_.advance();
  });
}

void ShmCollectives::point_at(const Arrays& arrays, const Job& job, std::size_t offset) {
  sources_.clear();
  targets_.clear();
  for (int peer = 0; peer < world_size(); ++peer) {
    targets_.push_back(arrays.first[peer] + offset);
    for (std::size_t node = 0; node < job.nodes_of(peer); ++node) {
      sources_.push_back(targets_.back() + node * arrays.node_bytes);
    }
  }
}

}  // namespace

std::unique_ptr<Collectives> make_shm_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<ShmCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
