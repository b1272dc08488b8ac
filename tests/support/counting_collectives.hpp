// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep::testing {

/// Passes everything on to another object and counts it.
class CountingCollectives : public mpi::Collectives {
 public:
  struct Counts {
    int all_reduces = 0;
    int range_reductions = 0;
    int waits = 0;
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

  explicit CountingCollectives(std::unique_ptr<mpi::Collectives> inner) : inner_(std::move(inner)) {}

  /// Since the last call.
  Counts take_counts() { return std::exchange(counts_, {}); }
  /// Called whenever a reduction is started.
  void on_start(std::function<void()> listener) { on_start_ = std::move(listener); }

  std::string_view name() const noexcept override { return inner_->name(); }
  int rank() const noexcept override { return inner_->rank(); }
  int world_size() const noexcept override { return inner_->world_size(); }
  int local_rank() const noexcept override { return inner_->local_rank(); }
  int local_size() const noexcept override { return inner_->local_size(); }

  mpi::BucketMemory allocate_bucket(std::size_t bytes) override {
    ++counts_.buckets;
    return inner_->allocate_bucket(bytes);
  }
  mpi::Ticket start_all_reduce(void* values, std::size_t count, DType dtype, mpi::ReduceOp op) override {
    ++counts_.all_reduces;
    counts_.bytes_reduced += count * size_of(dtype);
    if (on_start_) on_start_();
    return inner_->start_all_reduce(values, count, dtype, op);
  }
  void wait(mpi::Ticket ticket) override {
    ++counts_.waits;
    inner_->wait(ticket);
  }
  mpi::Ticket start_reduce_ranges(void* values, std::size_t count, DType dtype, mpi::ReduceOp op) override {
    ++counts_.range_reductions;
    if (on_start_) on_start_();
    return inner_->start_reduce_ranges(values, count, dtype, op);
  }
  void reduce_range(mpi::Ticket ticket, mpi::Slice range, const mpi::RangeConsumer& consume) override {
    inner_->reduce_range(ticket, range, consume);
  }
  mpi::Ticket start_lane_reduce(void* nodes, std::size_t count, std::size_t stride, DType dtype, mpi::ReduceOp op,
                                const mpi::LaneTree& tree) override {
    ++counts_.others;
    return inner_->start_lane_reduce(nodes, count, stride, dtype, op, tree);
  }
  mpi::Ticket start_lane_ranges(void* nodes, std::size_t count, std::size_t stride, DType dtype, mpi::ReduceOp op,
                                const mpi::LaneTree& tree) override {
    ++counts_.others;
    return inner_->start_lane_ranges(nodes, count, stride, dtype, op, tree);
  }
  void broadcast(std::span<std::byte> bytes, int root) override {
    ++counts_.broadcasts;
    inner_->broadcast(bytes, root);
  }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++counts_.gathers;
    counts_.bytes_gathered += all.size();
    inner_->all_gather(mine, all);
  }
  void reduce_scatter(void* values, std::size_t count, DType dtype, mpi::ReduceOp op, void* slice) override {
    ++counts_.others;
    counts_.bytes_scattered += count * size_of(dtype);
    inner_->reduce_scatter(values, count, dtype, op, slice);
  }
  mpi::Ticket start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    ++counts_.gathers;
    counts_.bytes_gathered += all.size();
    return inner_->start_all_gather(mine, all);
  }
  mpi::Ticket start_reduce_scatter(void* values, std::size_t count, DType dtype, mpi::ReduceOp op,
                                   void* slice) override {
    ++counts_.others;
    counts_.bytes_scattered += count * size_of(dtype);
    return inner_->start_reduce_scatter(values, count, dtype, op, slice);
  }
  void barrier() override {
    ++counts_.barriers;
    inner_->barrier();
  }
  std::unique_ptr<mpi::Collectives> split(int color) override {
    ++counts_.others;
    auto part = std::make_unique<CountingCollectives>(inner_->split(color));
    splits_.push_back(part.get());
    return part;
  }
  /// The result of split number `i`, while its owner keeps it.
  CountingCollectives& split_number(std::size_t i) const { return *splits_.at(i); }

 private:
  std::unique_ptr<mpi::Collectives> inner_;
  Counts counts_;
  std::function<void()> on_start_;
  std::vector<CountingCollectives*> splits_;
};

}  // namespace lockstep::testing
