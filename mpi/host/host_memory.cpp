// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/host_memory.hpp"

#include <cstring>
#include <iterator>
#include <utility>

#include "mpi/process/chunks.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kPageBytes = 4096;

std::size_t whole_pages(std::size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

}  // namespace

/// One slot of shared memory per rank.
struct HostMemory::Bucket {
  SharedRegion region;
  std::size_t slot_bytes = 0;
  std::uint32_t number = 0;

  std::byte* slot(int rank) const { return region.bytes().data() + rank * slot_bytes; }
};

HostMemory::HostMemory(Communicator host, std::vector<int> ranks, const WaitOptions& options)
    : host_(std::move(host)),
      ranks_(std::move(ranks)),
      meeting_bytes_(whole_pages(Rendezvous::bytes_for(size()))),
      control_(host_, meeting_bytes_ + size() * kStagingBytes),
      meeting_(host_, ranks_, control_.bytes().first(meeting_bytes_), options) {
  arrays_.first.resize(ranks_.size());
}

BucketMemory HostMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return {};
  const auto bucket = std::make_shared<Bucket>();
  bucket->slot_bytes = whole_pages(bytes);
  bucket->region = SharedRegion(host_, size() * bucket->slot_bytes);
  bucket->number = ++last_bucket_;
  // An older bucket at these addresses is gone; nothing but its entry is left.
  std::erase_if(buckets_, [](const auto& entry) { return entry.second.expired(); });
  std::byte* const mine = bucket->slot(rank());
  buckets_[mine] = bucket;
  return {.bytes = {mine, bytes}, .owner = bucket};
}

std::shared_ptr<HostMemory::Bucket> HostMemory::bucket_of(const std::byte* values, std::size_t bytes) const {
  const auto next = buckets_.upper_bound(values);
  if (next == buckets_.begin()) return nullptr;
  const auto& [slot, weak_bucket] = *std::prev(next);
  auto bucket = weak_bucket.lock();
  const bool is_inside = bucket && static_cast<std::size_t>(values - slot) + bytes <= bucket->slot_bytes;
  return is_inside ? bucket : nullptr;
}

void HostMemory::announce(const Job& job) {
  meeting_.throw_if_given_up();
  Posting posting{.call = job.call};
  if (is_reduction(job.call.kind)) {
    if (const auto bucket = bucket_of(job.values, job.extent_of(ranks_[rank()]))) {
      posting.bucket = bucket->number;
      posting.offset = static_cast<std::uint64_t>(job.values - bucket->slot(rank()));
    }
  }
  meeting_.arrive(posting);
}

std::string HostMemory::await_all(const Job& job) {
  meeting_.await_arrival(job.call);
  return disagreement(ranks_,
                      [&](int local) -> const Call& { return meeting_.posting(local, job.call.sequence).call; });
}

void HostMemory::meet(const Job& job) {
  meeting_.advance();
  meeting_.await_progress(meeting_.progress(), job.call);
}

void HostMemory::finish(const Job& job) {
  meeting_.advance();
  progress_after_[job.call.sequence % progress_after_.size()] = meeting_.progress();
}

void HostMemory::settle(const Job& job) {
  meeting_.await_progress(progress_after_[job.call.sequence % progress_after_.size()], job.call);
}

const Arrays* HostMemory::find(const Job& job) {
  const std::uint64_t sequence = job.call.sequence;
  const std::uint32_t mine = meeting_.posting(rank(), sequence).bucket;
  if (mine == 0) return nullptr;
  for (int peer = 0; peer < size(); ++peer) {
    if (meeting_.posting(peer, sequence).bucket != mine) return nullptr;
  }
  const auto bucket = bucket_of(job.values, job.extent_of(ranks_[rank()]));
  if (!bucket) return nullptr;
  for (int peer = 0; peer < size(); ++peer) {
    arrays_.first[peer] = bucket->slot(peer) + meeting_.posting(peer, sequence).offset;
  }
  arrays_.node_bytes = job.node_bytes();
  return &arrays_;
}

void HostMemory::reduce(const Job& job, const ReduceArrays& reduce_arrays) {
  if (const Arrays* const arrays = find(job)) return reduce_arrays(*arrays, job.call.count);
  reduce_staged(job, reduce_arrays);
}

void HostMemory::reduce_staged(const Job& job, const ReduceArrays& reduce_arrays) {
  for_each_chunk(job.call.count, staged_elements(job), [&](std::size_t begin, std::size_t count) {
    std::byte* const values = job.values + begin * job.element_bytes();
    const std::size_t bytes = count * job.element_bytes();
    stage(values, bytes, job);
    reduce_arrays(staged(bytes), count);
    meet(job);
    std::memcpy(values, staging(rank()), bytes);
  });
}

void HostMemory::stage(const std::byte* values, std::size_t bytes, const Job& job) {
  meeting_.await_progress(meeting_.progress(), job.call);  // nobody reads the former contents any more
  for (std::size_t node = 0; bytes > 0 && node < job.nodes_of(ranks_[rank()]); ++node) {
    std::memcpy(staging(rank()) + node * bytes, values + node * job.node_bytes(), bytes);
  }
  meet(job);
}

const Arrays& HostMemory::staged(std::size_t bytes) {
  for (int peer = 0; peer < size(); ++peer) arrays_.first[peer] = staging(peer);
  arrays_.node_bytes = bytes;
  return arrays_;
}

}  // namespace lockstep::mpi
