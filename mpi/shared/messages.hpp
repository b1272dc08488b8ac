// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "mpi/shared/job.hpp"
#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// Messages under way to and from some peers, waited for together.
class Exchange {
 public:
  /// @param comm  outlives the object
  Exchange(const Communicator& comm, int tag) : comm_(comm), tag_(tag) {}
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  ~Exchange();

  void receive(std::byte* target, std::size_t bytes, int peer);
  void send(const std::byte* from, std::size_t bytes, int peer);
  void broadcast(std::byte* bytes, std::size_t count, int root);

  bool is_done();
  /// The ranks with which a message is still under way.
  std::vector<int> late_peers() const;

 private:
  MPI_Request* add(int peer);

  const Communicator& comm_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

/// Jobs done by messages between the ranks of a communicator. Point-to-point messages keep the order of summation in
/// our hands (MPI_Allreduce may choose any), state which rank is late, and can be given up. Collective, all but
/// `await`.
class Messages final : private WaitPoint {
 public:
  /// @param host  ends the waits of this rank when a rank of its host fails; can be null
  Messages(Communicator comm, const WaitOptions& options, Rendezvous* host = nullptr);
  ~Messages() override { note_end(); }

  static constexpr int kCallTag = 1;  ///< tag of the messages by which ranks meet

  const Communicator& comm() const noexcept { return comm_; }

  /// Waits until all ranks have come to a call, and compares the calls.
  void meet(const Job& job);
  void all_reduce(const Job& job);
  void reduce_scatter(const Job& job);
  void broadcast(const Job& job);
  void all_gather(const Job& job);

  /// Exchanges what ranks say about a call to which they come, with some of them. Whoever says it waits for the others.
  /// @param notices  by peer in `ranks`, this rank among them
  template <class Notice>
  void exchange_notices(std::span<const int> ranks, std::span<Notice> notices, const Call& call,
                        const std::string& peer_name = "rank ");

  /// @param peer_name  what comes before a late peer's number
  void await(Exchange& exchange, const Call& call, const std::string& peer_name = "rank ");

 private:
  /// Sums slice r of every rank's values, which begin at `values`, on rank r.
  void reduce_slices(const std::byte* values, std::span<const Slice> slices, std::byte* result, const Job& job);
  bool is_awaited_by(int world_rank, std::uint32_t peer_thread) override;
  void look_around(const Exchange& exchange, const Call& call, double seconds, const std::string& peer_name);
  [[noreturn]] void fail(const std::string& reason);
  template <class Visit>
  void for_each_peer(Visit visit) const;

  Communicator comm_;
  WaitOptions options_;
  Rendezvous* host_;
  std::vector<int> ranks_;  ///< 0, 1, ...
  std::vector<int> world_ranks_;
  std::vector<std::byte> scratch_;
  std::vector<const std::byte*> sources_;  ///< sources of the current reduction
};

template <class Notice>
void Messages::exchange_notices(std::span<const int> ranks, std::span<Notice> notices, const Call& call,
                                const std::string& peer_name) {
  note_use();
  Exchange exchange(comm_, kCallTag);
  const auto mine = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), comm_.rank()) - ranks.begin());
  for (std::size_t distance = 1; distance < ranks.size(); ++distance) {  // not all to the same rank at once
    const std::size_t peer = (mine + distance) % ranks.size();
    exchange.receive(reinterpret_cast<std::byte*>(&notices[peer]), sizeof(Notice), ranks[peer]);
    exchange.send(reinterpret_cast<const std::byte*>(&notices[mine]), sizeof(Notice), ranks[peer]);
  }
  await(exchange, call, peer_name);
}

}  // namespace lockstep::mpi
