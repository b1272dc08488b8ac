// SPDX-License-Identifier: BSD-3-Clause
// All ranks on one host. Every rank maps every rank's memory, so a reduction moves nothing: each rank sums its slice of
// all slots and writes the result into all slots. Values outside buckets pass through a staging slot per rank.
#include <lockstep/mpi/shared_region.hpp>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "backends.hpp"
#include "chunks.hpp"
#include "ordered_collectives.hpp"
#include "reduction.hpp"
#include "rendezvous.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kStagingBytes = 256 << 10;  // a chunk of every rank stays in the second-level cache

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

/// One slot of shared memory per rank.
struct Bucket {
  SharedRegion region;
  std::size_t slot_bytes = 0;
  std::uint32_t number = 0;

  std::byte* slot(int rank) const { return region.bytes().data() + rank * slot_bytes; }
};

class ShmCollectives final : public OrderedCollectives {
 public:
  ShmCollectives(Communicator host, const WaitOptions& options)
      : OrderedCollectives(host.rank(), host.size()),
        host_(std::move(host)),
        options_(options),
        meeting_bytes_(whole_pages(Rendezvous::bytes_for(world_size()))),
        control_(host_, meeting_bytes_ + world_size() * kStagingBytes),
        meeting_(host_, control_.bytes().first(meeting_bytes_), options) {}

  std::string_view name() const noexcept override { return "shm"; }
  int local_rank() const noexcept override { return rank(); }
  int local_size() const noexcept override { return world_size(); }
  BucketMemory allocate_bucket(std::size_t bytes) override;
  std::unique_ptr<Collectives> split(int color) override;

 protected:
  void announce(const Job& job) override;
  void perform(const Job& job) override;
  void settle(const Job& job) override;
  void open(const Job& job) override;
  void take(const Job& job, Slice range, const RangeConsumer& consume) override;

 private:
  static_assert(Rendezvous::kPostings >= kMostJobs);

  std::shared_ptr<Bucket> bucket_of(const std::byte* values, std::size_t bytes) const;
  std::shared_ptr<Bucket> common_bucket(const Job& job) const;
  void await_all(const Job& job);
  void run(const Job& job);

  void all_reduce_in_place(const Job& job, const Bucket& bucket);
  void all_reduce_staged(const Job& job);
  void reduce_scatter_in_place(const Job& job, const Bucket& bucket);
  void reduce_scatter_staged(const Job& job);
  void broadcast_staged(const Job& job);
  void all_gather_staged(const Job& job);

  std::byte* staging(int rank) const { return control_.bytes().data() + meeting_bytes_ + rank * kStagingBytes; }
  void fill_staging(const std::byte* values, std::size_t bytes, const Job& job);
  std::size_t staged_elements(const Job& job) const;
  void meet(const Job& job);
  template <class FirstArray>
  void point_at(const Job& job, std::size_t node_bytes, FirstArray first_array);
  void point_at_buckets(const Job& job, const Bucket& bucket, std::size_t offset);
  void point_at_staging(const Job& job, std::size_t node_bytes, std::size_t offset);

  Communicator host_;
  WaitOptions options_;
  std::size_t meeting_bytes_;
  SharedRegion control_;
  Rendezvous meeting_;
  std::vector<const std::byte*> sources_;                      ///< of the reduction at hand: the arrays of all ranks
  std::vector<std::byte*> targets_;                            ///< the first array of each rank, to write to
  std::map<const std::byte*, std::weak_ptr<Bucket>> buckets_;  ///< by the start of this rank's slot
  std::uint32_t last_bucket_ = 0;                              ///< number of the newest bucket; the first is 1
  std::array<std::uint64_t, kMostJobs> progress_after_{};      ///< of the jobs that were performed
};

BucketMemory ShmCollectives::allocate_bucket(std::size_t bytes) {
  complete({.call = {.count = bytes, .kind = Kind::allocate_bucket}});
  if (bytes == 0) return {};
  const auto bucket = std::make_shared<Bucket>();
  bucket->slot_bytes = whole_pages(bytes);
  bucket->region = SharedRegion(host_, world_size() * bucket->slot_bytes);
  bucket->number = ++last_bucket_;
  // An older bucket at these addresses is gone; nothing but its entry is left.
  std::erase_if(buckets_, [](const auto& entry) { return entry.second.expired(); });
  std::byte* const mine = bucket->slot(rank());
  buckets_[mine] = bucket;
  return {.bytes = {mine, bytes}, .owner = bucket};
}

std::unique_ptr<Collectives> ShmCollectives::split(int color) {
  complete({.call = {.kind = Kind::split}});
  return make_shm_collectives(host_.split(color, rank()), options_);
}

std::shared_ptr<Bucket> ShmCollectives::bucket_of(const std::byte* values, std::size_t bytes) const {
  const auto next = buckets_.upper_bound(values);
  if (next == buckets_.begin()) return nullptr;
  const auto& [slot, weak_bucket] = *std::prev(next);
  auto bucket = weak_bucket.lock();
  const bool is_inside = bucket && static_cast<std::size_t>(values - slot) + bytes <= bucket->slot_bytes;
  return is_inside ? bucket : nullptr;
}

/// The bucket in which all ranks have the values of `job`, if there is one.
std::shared_ptr<Bucket> ShmCollectives::common_bucket(const Job& job) const {
  const std::uint32_t mine = meeting_.posting(rank(), job.call.sequence).bucket;
  if (mine == 0) return nullptr;
  for (int peer = 0; peer < world_size(); ++peer) {
    if (meeting_.posting(peer, job.call.sequence).bucket != mine) return nullptr;
  }
  return bucket_of(job.values, job.extent_of(rank()));
}

void ShmCollectives::announce(const Job& job) {
  meeting_.throw_if_given_up();
  Posting posting{.call = job.call};
  if (is_reduction(job.call.kind)) {
    if (const auto bucket = bucket_of(job.values, job.extent_of(rank()))) {
      posting.bucket = bucket->number;
      posting.offset = static_cast<std::uint64_t>(job.values - bucket->slot(rank()));
    }
  }
  meeting_.arrive(posting);
}

void ShmCollectives::perform(const Job& job) {
  await_all(job);
  run(job);
  meeting_.advance();
  progress_after_[job.call.sequence % kMostJobs] = meeting_.progress();
}

/// Waits until all ranks have come to a call, and compares the calls.
void ShmCollectives::await_all(const Job& job) {
  const std::uint64_t sequence = job.call.sequence;
  meeting_.await_arrival(job.call);
  const std::string fault =
      disagreement(world_size(), [this, sequence](int peer) { return meeting_.posting(peer, sequence).call; });
  if (!fault.empty()) meeting_.give_up(fault);
}

void ShmCollectives::settle(const Job& job) {
  meeting_.await_progress(progress_after_[job.call.sequence % kMostJobs], job.call);
}

/// Values in buckets stay as they are: whoever asks for a range reads all slots and writes to none.
void ShmCollectives::open(const Job& job) {
  await_all(job);
  if (!common_bucket(job)) all_reduce_staged(job);
}

void ShmCollectives::take(const Job& job, Slice range, const RangeConsumer& consume) {
  const auto bucket = common_bucket(job);
  if (!bucket) return hand_over(job, range, consume);
  reduce_pieces(job, range, consume, [&](std::size_t begin) -> std::span<const std::byte* const> {
    point_at_buckets(job, *bucket, begin * job.element_bytes());
    return sources_;
  });
}

void ShmCollectives::run(const Job& job) {
  switch (job.call.kind) {
    case Kind::all_reduce:
      if (const auto bucket = common_bucket(job)) return all_reduce_in_place(job, *bucket);
      return all_reduce_staged(job);
    case Kind::reduce_scatter:
      if (const auto bucket = common_bucket(job)) return reduce_scatter_in_place(job, *bucket);
      return reduce_scatter_staged(job);
    case Kind::broadcast:
      return broadcast_staged(job);
    case Kind::all_gather:
      return all_gather_staged(job);
    case Kind::reduce_ranges:  // is opened instead
    case Kind::barrier:
    case Kind::allocate_bucket:
    case Kind::split:
      return;  // all have come: that is all
  }
}

void ShmCollectives::all_reduce_in_place(const Job& job, const Bucket& bucket) {
  const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
  point_at_buckets(job, bucket, slice.begin * job.element_bytes());
  reduce(sources_, targets_, slice.count, job.reduction());
}

void ShmCollectives::all_reduce_staged(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  for_each_chunk(job.call.count, staged_elements(job), [&](std::size_t begin, std::size_t count) {
    std::byte* const values = job.values + begin * element_bytes;
    fill_staging(values, count * element_bytes, job);
    const Slice slice = slice_of(count, rank(), world_size(), element_bytes);
    point_at_staging(job, count * element_bytes, slice.begin * element_bytes);
    reduce(sources_, targets_, slice.count, job.reduction());
    meet(job);
    std::memcpy(values, staging(rank()), count * element_bytes);
  });
}

void ShmCollectives::reduce_scatter_in_place(const Job& job, const Bucket& bucket) {
  const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
  point_at_buckets(job, bucket, slice.begin * job.element_bytes());
  reduce(sources_, std::span(&job.result, 1), slice.count, job.reduction());
}

void ShmCollectives::reduce_scatter_staged(const Job& job) {
  const std::size_t element_bytes = job.element_bytes();
  const Slice slice = slice_of(job.call.count, rank(), world_size(), element_bytes);
  for_each_chunk(job.call.count, staged_elements(job), [&](std::size_t begin, std::size_t count) {
    fill_staging(job.values + begin * element_bytes, count * element_bytes, job);
    const std::size_t first = std::max(begin, slice.begin);
    const std::size_t last = std::min(begin + count, slice.begin + slice.count);
    if (first < last) {
      std::byte* const result = job.result + (first - slice.begin) * element_bytes;
      point_at_staging(job, count * element_bytes, (first - begin) * element_bytes);
      reduce(sources_, std::span(&result, 1), last - first, job.reduction());
    }
    meeting_.advance();
  });
}

void ShmCollectives::broadcast_staged(const Job& job) {
  const bool is_root = rank() == job.call.root;
  for_each_chunk(job.call.count, kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
    fill_staging(job.values + begin, is_root ? bytes : 0, job);
    if (!is_root) std::memcpy(job.values + begin, staging(job.call.root), bytes);
    meeting_.advance();
  });
}

void ShmCollectives::all_gather_staged(const Job& job) {
  for_each_chunk(job.call.count, kStagingBytes, [&](std::size_t begin, std::size_t bytes) {
    fill_staging(job.values + begin, bytes, job);
    for (int peer = 0; peer < world_size(); ++peer) {
      std::memcpy(job.result + peer * job.call.count + begin, staging(peer), bytes);
    }
    meeting_.advance();
  });
}

/// Shows `bytes` of each of this rank's arrays to the peers in its staging slot, one after the other; returns when all
/// ranks have done so.
void ShmCollectives::fill_staging(const std::byte* values, std::size_t bytes, const Job& job) {
  meeting_.await_progress(meeting_.progress(), job.call);  // nobody reads the former contents any more
  for (std::size_t node = 0; bytes > 0 && node < job.nodes_of(rank()); ++node) {
    std::memcpy(staging(rank()) + node * bytes, values + node * job.node_bytes(), bytes);
  }
  meet(job);
}

/// Elements of an array that can be staged at a time, together with those of the rank's other arrays.
std::size_t ShmCollectives::staged_elements(const Job& job) const {
  std::size_t most_nodes = 1;
  for (int peer = 0; peer < world_size(); ++peer) most_nodes = std::max(most_nodes, job.nodes_of(peer));
  return kStagingBytes / job.element_bytes() / most_nodes;
}

void ShmCollectives::meet(const Job& job) {
  meeting_.advance();
  meeting_.await_progress(meeting_.progress(), job.call);
}

void ShmCollectives::point_at_buckets(const Job& job, const Bucket& bucket, std::size_t offset) {
  point_at(job, job.node_bytes(),
           [&](int peer) { return bucket.slot(peer) + meeting_.posting(peer, job.call.sequence).offset + offset; });
}

void ShmCollectives::point_at_staging(const Job& job, std::size_t node_bytes, std::size_t offset) {
  point_at(job, node_bytes, [&](int peer) { return staging(peer) + offset; });
}

/// @param first_array  gives the place of the first array of a rank; the others follow node_bytes apart
template <class FirstArray>
void ShmCollectives::point_at(const Job& job, std::size_t node_bytes, FirstArray first_array) {
  sources_.clear();
  targets_.clear();
  for (int peer = 0; peer < world_size(); ++peer) {
    targets_.push_back(first_array(peer));
    for (std::size_t node = 0; node < job.nodes_of(peer); ++node) {
      sources_.push_back(targets_.back() + node * node_bytes);
    }
  }
}

}  // namespace

std::unique_ptr<Collectives> make_shm_collectives(Communicator comm, const WaitOptions& options) {
  return std::make_unique<ShmCollectives>(std::move(comm), options);
}

}  // namespace lockstep::mpi
