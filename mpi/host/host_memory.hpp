// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mpi/host/shared_region.hpp"
#include "mpi/shared/job.hpp"
#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// The addresses where the ranks of a host have the arrays of a reduction.
struct Arrays {
  std::vector<std::byte*> first;  ///< first array of each local rank
  std::size_t node_bytes = 0;     ///< distance between two arrays of a rank, in bytes
};

/// The memory that the ranks of one host share: a place to meet, buckets with a slot of each rank, and a staging slot
/// of each for values that lie elsewhere. All members but the look-ups are collective over the host.
class HostMemory {
 public:
  static constexpr std::size_t kStagingBytes = 256 << 10;  ///< a chunk of every rank stays in the second-level cache

  /// @param ranks  what the host's ranks are called in error texts and in a LaneTree
  HostMemory(Communicator host, std::vector<int> ranks, const WaitOptions& options);

  int rank() const noexcept { return host_.rank(); }
  int size() const noexcept { return host_.size(); }
  const Communicator& communicator() const noexcept { return host_; }
  Rendezvous& meeting() noexcept { return meeting_; }

  BucketMemory allocate(std::size_t bytes);

  /// Lets the others see that this rank has come to a call, and where it has its values. Does not wait.
  void announce(const Job& job);
  /// Waits until all have come to a call, and compares the calls.
  /// @return  both sides in one sentence; empty when all agree
  std::string await_all(const Job& job);
  /// Waits until all have come to this place of a call's work.
  void meet(const Job& job);
  /// Notes that this rank has done its work on a call.
  void finish(const Job& job);
  /// Waits until all have done their work on a call that this rank has finished.
  void settle(const Job& job);

  /// The addresses of the arrays of a reduction, that all ranks have in one bucket; null where that is not so. Valid
  /// until the next look-up.
  const Arrays* find(const Job& job);

  /// Reduces arrays of `count` elements and writes the result to the first array of every rank, together with the other
  /// ranks.
  using ReduceArrays = std::function<void(const Arrays& arrays, std::size_t count)>;
  /// Reduces the values of a call: where they are if all ranks have them in one bucket, else in the staging slots.
  void reduce(const Job& job, const ReduceArrays& reduce_arrays);
  void reduce_staged(const Job& job, const ReduceArrays& reduce_arrays);

  /// Copies `bytes` of each of this rank's arrays into its staging slot, one after the other; returns when all have.
  void stage(const std::byte* values, std::size_t bytes, const Job& job);
  /// Their addresses. Valid until the next look-up.
  const Arrays& staged(std::size_t bytes);
  std::byte* staging(int rank) const { return control_.bytes().data() + meeting_bytes_ + rank * kStagingBytes; }
  /// Elements of an array that can be staged at a time, together with those of a rank's other arrays. The same on all
  /// hosts.
  std::size_t staged_elements(const Job& job) const { return kStagingBytes / job.element_bytes() / job.max_nodes(); }

 private:
  struct Bucket;

  std::shared_ptr<Bucket> bucket_of(const std::byte* values, std::size_t bytes) const;

  Communicator host_;
  std::vector<int> ranks_;
  std::size_t meeting_bytes_;
  SharedRegion control_;
  Rendezvous meeting_;
  Arrays arrays_;                                                      ///< that were looked up last
  std::map<const std::byte*, std::weak_ptr<Bucket>> buckets_;          ///< buckets by the start of this rank's slot
  std::uint32_t last_bucket_ = 0;                                      ///< number of the newest bucket; the first is 1
  std::array<std::uint64_t, Rendezvous::kPostings> progress_after_{};  ///< progress after each finished call
};

}  // namespace lockstep::mpi
