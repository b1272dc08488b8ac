// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "support/testing_collectives.hpp"

namespace lockstep::testing {

namespace {

using mpi::BucketMemory;
using mpi::LaneTree;
using mpi::RangeConsumer;
using mpi::ReduceOp;
using mpi::Slice;
using mpi::Ticket;
using Clock = std::chrono::steady_clock;

class DelayCollectives final : public mpi::Collectives {
 public:
  DelayCollectives(std::unique_ptr<mpi::Collectives> inner, const LinkModel& link)
      : inner_(std::move(inner)), link_(link) {}

  std::string_view name() const noexcept override { return "delay"; }
  int rank() const noexcept override { return inner_->rank(); }
  int world_size() const noexcept override { return inner_->world_size(); }
  int local_rank() const noexcept override { return inner_->local_rank(); }
  int local_size() const noexcept override { return inner_->local_size(); }

  BucketMemory allocate_bucket(std::size_t bytes) override {
    const Clock::time_point end = begin(0);
    BucketMemory memory = inner_->allocate_bucket(bytes);
    std::this_thread::sleep_until(end);
    return memory;
  }

  Ticket start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) override {
    return started(inner_->start_all_reduce(values, count, dtype, op), count * size_of(dtype));
  }
  Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op) override {
    return started(inner_->start_reduce_ranges(values, count, dtype, op), count * size_of(dtype));
  }
  Ticket start_lane_reduce(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                           const LaneTree& tree) override {
    return started(inner_->start_lane_reduce(nodes, count, stride, dtype, op, tree), count * size_of(dtype));
  }
  Ticket start_lane_ranges(void* nodes, std::size_t count, std::size_t stride, DType dtype, ReduceOp op,
                           const LaneTree& tree) override {
    return started(inner_->start_lane_ranges(nodes, count, stride, dtype, op, tree), count * size_of(dtype));
  }

  void wait(Ticket ticket) override {
    inner_->wait(ticket);
    sleep_for_ticket(ticket);
  }
  void reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) override {
    sleep_for_ticket(ticket);
    inner_->reduce_range(ticket, range, consume);
  }

  void broadcast(std::span<std::byte> bytes, int root) override {
    const Clock::time_point end = begin(bytes.size());
    inner_->broadcast(bytes, root);
    std::this_thread::sleep_until(end);
  }
  Ticket start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    return started(inner_->start_all_gather(mine, all), all.size());
  }
  Ticket start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) override {
    return started(inner_->start_reduce_scatter(values, count, dtype, op, slice), count * size_of(dtype));
  }
  void barrier() override {
    const Clock::time_point end = begin(0);
    inner_->barrier();
    std::this_thread::sleep_until(end);
  }
  bool has_failed() const noexcept override { return inner_->has_failed(); }
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
