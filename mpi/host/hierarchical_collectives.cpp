// SPDX-License-Identifier: BSD-3-Clause
// Shared memory inside a host, messages between hosts. What a reduction needs of one host lies in memory that its
// ranks share; the first ranks of each host carry a slice each between the hosts (HostChain).
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "mpi/host/host_chain.hpp"
#include "mpi/host/host_collectives.hpp"
#include "mpi/host/host_memory.hpp"
#include "mpi/process/chunks.hpp"
#include "mpi/shared/messages.hpp"

namespace lockstep::mpi {

namespace {

constexpr double kGraceSeconds = 5;  // lets a rank that waits for another host report first

WaitOptions with_grace(WaitOptions options) {
  options.grace_s = kGraceSeconds;
  return options;
}

/// The message of the first rank of a host to the first ranks of other hosts about a call.
struct Notice {
  Call call;
  std::array<char, 400> fault{};  ///< fault: what the ranks of this host disagree about
};

class HierarchicalCollectives final : public HostCollectives {
 public:
  HierarchicalCollectives(Communicator comm, const HostLayout& layout, const WaitOptions& options)
      : HostCollectives(facts_of(comm, layout)),
        options_(options),
        layout_(layout),
        host_(layout_.host_of(rank())),
        memory_(comm.split(host_, rank()), layout_.ranks_of(host_), with_grace(options)),
        messages_(std::move(comm), options, &memory_.meeting()),
        chain_(layout_, messages_) {}

 protected:
  BucketMemory allocate(std::size_t bytes) override { return memory_.allocate(bytes); }

  std::unique_ptr<Collectives> make_part(int color) override {
    Communicator part = messages_.comm().split(color, rank());
    const std::int32_t mine = host_;
    std::vector<std::int32_t> hosts(static_cast<std::size_t>(part.size()));
    part.all_gather(std::span(&mine, 1), std::span(hosts));
    return make_hierarchical_collectives(std::move(part), hosts, options_);
  }

  void announce(const Job& job) override { memory_.announce(job); }

  /// Waits until all ranks of all hosts have come to a call, and compares the calls. The first rank of a host does so
  /// for all of them, so that all give up for the same reason.
  void await_all(const Job& job) override {
    std::string fault = memory_.await_all(job);
    if (memory_.rank() == 0) {
      if (layout_.host_count() > 1) fault = compare_hosts(job, fault);
      if (!fault.empty()) memory_.meeting().give_up(fault);
    }
    memory_.meet(job);
  }

  void finish(const Job& job) override { memory_.finish(job); }
  void settle(const Job& job) override { memory_.settle(job); }
  void notify_peers(const std::string& reason, ExitCode code) noexcept override {
    memory_.meeting().notify_peers(reason, code);
  }

  /// Each carrier writes the result of its slice to its own slot.
  void open(const Job& job) override {
    await_all(job);
    if (const Arrays* const arrays = memory_.find(job)) {
      chain_.reduce(job, *arrays, job.call.count, std::span(arrays->first).subspan(memory_.rank(), 1));
    } else {
      memory_.reduce_staged(job, to_all(job));
    }
    finish(job);
  }

  void take(const Job& job, Slice range, const RangeConsumer& consume) override {
    settle(job);
    const Arrays* const arrays = memory_.find(job);
    if (arrays == nullptr) return hand_over(job.values, job, range, consume);
    for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
      const Slice piece{.begin = range.begin + offset, .count = count};
      consume(piece.begin, result_of(job, *arrays, piece), count);
    });
  }

  void perform_all_reduce(const Job& job) override { memory_.reduce(job, to_all(job)); }

  void perform_reduce_scatter(const Job& job) override {
    perform_all_reduce(job);
    memory_.meet(job);
    const Slice slice = slice_of(job.call.count, rank(), world_size(), job.element_bytes());
    std::memcpy(job.result, job.values + slice.begin * job.element_bytes(), slice.count * job.element_bytes());
  }

  void perform_broadcast(const Job& job) override { messages_.broadcast(job); }
  void perform_all_gather(const Job& job) override { messages_.all_gather(job); }

 private:
  static_assert(Rendezvous::kPostings >= kMaxJobs);

  static RankFacts facts_of(const Communicator& comm, const HostLayout& layout) {
    return {.name = "hierarchical",
            .rank = comm.rank(),
            .world_size = comm.size(),
            .local_rank = layout.local_rank_of(comm.rank()),
            .local_size = static_cast<int>(layout.ranks_of(layout.host_of(comm.rank())).size())};
  }

  /// @param fault  what this host's ranks disagree about
  /// @return  the same on all hosts
  std::string compare_hosts(const Job& job, const std::string& fault) {
    std::vector<Notice> notices(static_cast<std::size_t>(layout_.host_count()));
    notices[host_].call = job.call;
    fault.copy(notices[host_].fault.data(), Notice().fault.size() - 1);
    std::vector<int> leaders;
    for (int host = 0; host < layout_.host_count(); ++host) leaders.push_back(layout_.ranks_of(host).front());
    messages_.exchange_notices(leaders, std::span(notices), job.call, "the host of rank ");
    for (const Notice& notice : notices) {
      if (notice.fault[0] != '\0') return notice.fault.data();
    }
    return disagreement(leaders, [&notices](int host) -> const Call& { return notices[host].call; });
  }

  /// The reduction whose result goes to the first array of every rank.
  HostMemory::ReduceArrays to_all(const Job& job) {
    return [this, &job](const Arrays& arrays, std::size_t count) { chain_.reduce(job, arrays, count, arrays.first); };
  }

  /// A piece of the result in the slot of its carrier; a copy if a border between carriers cuts it.
  const std::byte* result_of(const Job& job, const Arrays& arrays, Slice piece) {
    const std::size_t element_bytes = job.element_bytes();
    for (int carrier = 0; carrier < layout_.carriers(); ++carrier) {
      const Slice slice = slice_of(job.call.count, carrier, layout_.carriers(), element_bytes);
      const std::size_t begin = std::max(piece.begin, slice.begin);
      const std::size_t end = std::min(piece.begin + piece.count, slice.begin + slice.count);
      if (begin >= end) continue;
      const std::byte* const part = arrays.first[carrier] + begin * element_bytes;
      if (end - begin == piece.count) return part;
      std::memcpy(piece_.data() + (begin - piece.begin) * element_bytes, part, (end - begin) * element_bytes);
    }
    return piece_.data();
  }

  WaitOptions options_;
  HostLayout layout_;
  int host_;
  HostMemory memory_;
  Messages messages_;
  HostChain chain_;
};

}  // namespace

std::unique_ptr<Collectives> make_hierarchical_collectives(Communicator comm, const std::vector<int>& host_of_rank,
                                                           const WaitOptions& options) {
  return std::make_unique<HierarchicalCollectives>(std::move(comm), HostLayout(host_of_rank), options);
}

}  // namespace lockstep::mpi
