// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "mpi/shared/job.hpp"
#include "support/testing_collectives.hpp"

namespace lockstep::testing {

namespace {

using mpi::BucketMemory;
using mpi::Job;
using mpi::RangeConsumer;
using mpi::Slice;
using mpi::Ticket;
using Clock = std::chrono::steady_clock;

class DelayCollectives final : public mpi::Collectives {
 public:
  DelayCollectives(std::unique_ptr<mpi::Collectives> inner, const LinkModel& link)
      : Collectives(RankFacts{.name = "delay",
                              .rank = inner->rank(),
                              .world_size = inner->world_size(),
                              .local_rank = inner->local_rank(),
                              .local_size = inner->local_size()}),
        inner_(std::move(inner)),
        link_(link) {}

  BucketMemory allocate_bucket(std::size_t bytes) override {
    const Clock::time_point end = begin(0);
    BucketMemory memory = inner_->allocate_bucket(bytes);
    std::this_thread::sleep_until(end);
    return memory;
  }

  Ticket start(const Job& job) override {
    const bool is_gathered = job.call.kind == mpi::CallKind::all_gather;
    const std::size_t arrays = is_gathered ? static_cast<std::size_t>(world_size()) : 1;
    return started(inner_->start(job), arrays * job.call.count * job.element_bytes());
  }
  void wait(Ticket ticket) override {
    inner_->wait(ticket);
    sleep_for_ticket(ticket);
  }
  void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) override {
    sleep_for_ticket(ticket);
    inner_->reduce_range(ticket, range, consume);
  }
  void give_up(ExitCode code, const std::string& sentence) noexcept override { inner_->give_up(code, sentence); }
  std::unique_ptr<mpi::Collectives> split(int color) override {
    const Clock::time_point end = begin(0);
    auto part = make_delay_collectives(inner_->split(color), link_);
    std::this_thread::sleep_until(end);
    return part;
  }

 private:
  /// Puts an operation on the link.
  /// @return  when it is over
  Clock::time_point begin(std::size_t bytes) {
    const std::chrono::duration<double> takes(link_.latency_s + static_cast<double>(bytes) / link_.bytes_per_s);
    link_is_free_ = std::max(Clock::now(), link_is_free_) + std::chrono::duration_cast<Clock::duration>(takes);
    return link_is_free_;
  }

  Ticket started(Ticket ticket, std::size_t bytes) {
    const Clock::time_point now = Clock::now();
    std::erase_if(ends_, [now](const auto& end) { return end.second <= now; });
    ends_[ticket.sequence] = begin(bytes);
    return ticket;
  }

  void sleep_for_ticket(Ticket ticket) const {
    const auto end = ends_.find(ticket.sequence);
    if (end != ends_.end()) std::this_thread::sleep_until(end->second);
  }

  std::unique_ptr<mpi::Collectives> inner_;
  LinkModel link_;
  Clock::time_point link_is_free_;
  std::map<std::uint64_t, Clock::time_point> ends_;  ///< ends of tickets that were not over at the last look
};

}  // namespace

std::unique_ptr<mpi::Collectives> make_delay_collectives(std::unique_ptr<mpi::Collectives> inner,
                                                         const LinkModel& link) {
  return std::make_unique<DelayCollectives>(std::move(inner), link);
}

}  // namespace lockstep::testing
