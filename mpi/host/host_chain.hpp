// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "mpi/host/host_memory.hpp"
#include "mpi/shared/job.hpp"
#include "mpi/shared/messages.hpp"

namespace lockstep::mpi {

/// Which ranks run on which host.
class HostLayout {
 public:
  /// Ranks [begin, end), which follow each other on one host.
  struct HostRange {
    int host = 0;
    int begin = 0;
    int end = 0;
  };

  /// Numbers the hosts by their lowest rank.
  /// @param host_of_rank  any numbers
  explicit HostLayout(const std::vector<int>& host_of_rank);

  int host_count() const noexcept { return static_cast<int>(ranks_of_host_.size()); }
  int host_of(int rank) const { return host_of_rank_[static_cast<std::size_t>(rank)]; }
  int local_rank_of(int rank) const { return local_rank_[static_cast<std::size_t>(rank)]; }
  const std::vector<int>& ranks_of(int host) const { return ranks_of_host_[static_cast<std::size_t>(host)]; }
  /// The longest runs of ranks on one host, in rank order.
  const std::vector<HostRange>& segments() const noexcept { return segments_; }
  /// Ranks of the host that has the fewest: as many carry slices on every host.
  int carriers() const noexcept { return carriers_; }

 private:
  std::vector<int> host_of_rank_;
  std::vector<int> local_rank_;
  std::vector<std::vector<int>> ranks_of_host_;
  std::vector<HostRange> segments_;
  int carriers_ = 0;
};

/// Reductions over several hosts, with the bits of a sum in rank order.
///
/// An array is cut into a slice for each carrier: the first carriers() ranks of every host. The carriers of a slice
/// hand a partial result from segment to segment, and each adds its host's arrays, which it finds in shared memory. The
/// last has the result, which travels back from host to host. Every host sends and receives each element about twice,
/// once each way, as in a ring. Slices travel in pieces, so that all hosts work at the same time.
class HostChain {
 public:
  HostChain(const HostLayout& layout, Messages& messages);

  /// Reduces this rank's slice. Does nothing on a rank that carries none.
  /// @param arrays   of this host's ranks, `count` elements each
  /// @param targets  where the slice of the result goes: addresses of an array's first element
  void reduce(const Job& job, const Arrays& arrays, std::size_t count, std::span<std::byte* const> targets);

 private:
  static constexpr std::size_t kFlights = 2;  ///< pieces under way on a link

  /// The work that this host does in one segment.
  struct SegmentWork {
    int segment = 0;
    std::size_t arriving = 0;          ///< partial results that come from the segment before
    std::vector<std::size_t> groups;   ///< start of each group of sources, and the end; a group gives a partial result
    std::vector<std::uint8_t> merges;  ///< Reduction::merges of the sources; empty = in order
    std::array<std::vector<std::byte>, kFlights> received;
    std::array<std::vector<std::byte>, kFlights> sent;
  };
  class Link;
  class Run;

  void prepare(SegmentWork& part, const Job& job) const;

  const HostLayout& layout_;
  Messages& messages_;
  int rank_;
  int host_;
  std::vector<int> way_back_;  ///< hosts, beginning with that of the last segment
  std::size_t place_ = 0;      ///< place of this host in way_back_
  std::vector<SegmentWork> parts_;
};

}  // namespace lockstep::mpi
