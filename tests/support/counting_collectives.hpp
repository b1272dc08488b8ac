// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "mpi/shared/job.hpp"

namespace lockstep::testing {

/// Passes everything on to another object and counts it.
class CountingCollectives : public mpi::Collectives {
 public:
  struct Counts {
    int all_reduces = 0;
    int range_reductions = 0;
    int waits = 0;  ///< waits for all_reduces
    int broadcasts = 0;
    int gathers = 0;
    int barriers = 0;
    int buckets = 0;
    int others = 0;
    std::size_t bytes_reduced = 0;    ///< the arrays of all_reduce
    std::size_t bytes_scattered = 0;  ///< the arrays of reduce_scatter
    std::size_t bytes_gathered = 0;   ///< the results of all_gather

    int all() const {
      return all_reduces + range_reductions + waits + broadcasts + gathers + barriers + buckets + others;
    }
  };

  explicit CountingCollectives(std::unique_ptr<mpi::Collectives> inner)
      : Collectives(RankFacts{.name = std::string(inner->name()),
                              .rank = inner->rank(),
                              .world_size = inner->world_size(),
                              .local_rank = inner->local_rank(),
                              .local_size = inner->local_size()}),
        inner_(std::move(inner)) {}

  /// Since the last call.
  Counts take_counts() { return std::exchange(counts_, {}); }
  /// Called whenever a reduction is started.
  void on_start(std::function<void()> listener) { on_start_ = std::move(listener); }

  mpi::BucketMemory allocate_bucket(std::size_t bytes) override {
    ++counts_.buckets;
    return inner_->allocate_bucket(bytes);
  }
  mpi::Ticket start(const mpi::Job& job) override {
    count(job);
    const mpi::Ticket ticket = inner_->start(job);
    if (job.call.kind == mpi::CallKind::all_reduce) reductions_.insert(ticket.sequence);
    return ticket;
  }
  void wait(mpi::Ticket ticket) override {
    counts_.waits += static_cast<int>(reductions_.erase(ticket.sequence));
    inner_->wait(ticket);
  }
  void reduce_range(mpi::Ticket ticket, mpi::Slice range, const mpi::RangeConsumer& consume) override {
    inner_->reduce_range(ticket, range, consume);
  }
  void give_up(ExitCode code, const std::string& sentence) noexcept override { inner_->give_up(code, sentence); }
  std::unique_ptr<mpi::Collectives> split(int color) override {
    ++counts_.others;
    auto part = std::make_unique<CountingCollectives>(inner_->split(color));
    splits_.push_back(part.get());
    return part;
  }
  /// The result of split number `i`, while its owner keeps it.
  CountingCollectives& split_number(std::size_t i) const { return *splits_.at(i); }

 private:
  void count(const mpi::Job& job) {
    const std::size_t bytes = job.call.count * job.element_bytes();
    switch (job.call.kind) {
      case mpi::CallKind::all_reduce:
        ++counts_.all_reduces;
        counts_.bytes_reduced += bytes;
        break;
      case mpi::CallKind::reduce_ranges:
        ++counts_.range_reductions;
        break;
      case mpi::CallKind::broadcast:
        ++counts_.broadcasts;
        break;
      case mpi::CallKind::all_gather:
        ++counts_.gathers;
        counts_.bytes_gathered += job.call.count * static_cast<std::size_t>(world_size());
        break;
      case mpi::CallKind::barrier:
        ++counts_.barriers;
        break;
      default:
        ++counts_.others;
        counts_.bytes_scattered += bytes;
    }
    const bool is_reduction =
        job.call.kind == mpi::CallKind::all_reduce || job.call.kind == mpi::CallKind::reduce_ranges;
    if (is_reduction && on_start_) on_start_();
  }

  std::unique_ptr<mpi::Collectives> inner_;
  Counts counts_;
  std::set<std::uint64_t> reductions_;  ///< tickets of all_reduces that were not waited for
  std::function<void()> on_start_;
  std::vector<CountingCollectives*> splits_;
};

}  // namespace lockstep::testing
