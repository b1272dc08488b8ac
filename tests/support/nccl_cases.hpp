// SPDX-License-Identifier: BSD-3-Clause
// What the nccl backend does to device memory, in small integers: for GPUs and for what stands in for them.
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "mpi/shared/device_collectives.hpp"
#include "support/device.hpp"

namespace lockstep::mpi::nccl_cases {

inline std::unique_ptr<Collectives> make(const Communicator& world, const Device& device) {
  return make_collectives(world, {.backend = "nccl", .timeout_s = 60, .gpu = device.gpu()});
}

/// An array in device memory.
template <class T>
class NcclArray {
 public:
  NcclArray(const Device& device, std::size_t count)
      : device_(&device), memory_(device.memory(std::max<std::size_t>(1, count) * sizeof(T))), count_(count) {}
  NcclArray(const Device& device, const std::vector<T>& values) : NcclArray(device, values.size()) { set(values); }
  /// The place in a bucket.
  NcclArray(const Device& device, const BucketMemory& bucket)
      : device_(&device),
        memory_(std::shared_ptr<std::byte>(bucket.owner, bucket.bytes.data())),
        count_(bucket.bytes.size() / sizeof(T)) {}

  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  std::span<std::byte> bytes() const { return {memory_.get(), count_ * sizeof(T)}; }
  std::size_t size() const { return count_; }
  void set(const std::vector<T>& values) const { device_->write(memory_.get(), values.data(), count_ * sizeof(T)); }
  std::vector<T> get() const {
    std::vector<T> values(count_);
    device_->read(values.data(), memory_.get(), count_ * sizeof(T));
    return values;
  }

 private:
  const Device* device_;
  std::shared_ptr<std::byte> memory_;
  std::size_t count_;
};

/// The values of rank r: r + 1, r + 2, ... round at 1000.
template <class T>
std::vector<T> counted(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>((i + static_cast<std::size_t>(rank)) % 1000 + 1);
  return values;
}

/// Their sum over `ranks`.
template <class T>
std::vector<T> counted_sum(int ranks, std::size_t count) {
  std::vector<T> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = counted<T>(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + values[i]);
  }
  return sum;
}

inline void every_operation(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  const int ranks = world.size();
  EXPECT_EQ(collectives->name(), "nccl");
  EXPECT_TRUE(has_device_buckets(*collectives));
  const BucketMemory bucket = collectives->allocate_bucket(1003 * sizeof(float));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bucket.bytes.data()) % 64, 0U);
  const NcclArray<float> in_bucket(device, bucket);
  EXPECT_EQ(in_bucket.get(), std::vector<float>(1003));
  for (const NcclArray<float>& values : {in_bucket, NcclArray<float>(device, 1003)}) {
    values.set(counted<float>(world.rank(), 1003));
    collectives->all_reduce(values.data(), 1003, DType::float32, ReduceOp::sum);
    EXPECT_EQ(values.get(), counted_sum<float>(ranks, 1003));
  }
  for (int root = 0; root < ranks; ++root) {
    const NcclArray<float> values(device, counted<float>(world.rank(), 777));
    collectives->broadcast(values.bytes(), root);
    EXPECT_EQ(values.get(), counted<float>(root, 777)) << "from rank " << root;
  }
  {
    const NcclArray<float> mine(device, counted<float>(world.rank(), 50));
    const NcclArray<float> all(device, 50UL * static_cast<std::size_t>(ranks));
    collectives->all_gather(mine.bytes(), all.bytes());
    std::vector<float> expected;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto part = counted<float>(rank, 50);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    EXPECT_EQ(all.get(), expected);
  }
  for (const std::size_t count : {1UL, 17UL, 100UL, 4097UL}) {  // the last ranks may get nothing
    const NcclArray<float> values(device, counted<float>(world.rank(), count));
    const Slice slice = slice_of(count, world.rank(), ranks, sizeof(float));
    const NcclArray<float> mine(device, std::vector<float>(slice.count + 1, -7.0F));
    collectives->reduce_scatter(values.data(), count, DType::float32, ReduceOp::sum, mine.data());
    const std::vector<float> sum = counted_sum<float>(ranks, count);
    const auto from = sum.begin() + static_cast<std::ptrdiff_t>(slice.begin);
    std::vector<float> expected(from, from + static_cast<std::ptrdiff_t>(slice.count));
    expected.push_back(-7.0F);
    EXPECT_EQ(mine.get(), expected) << count << " elements";
  }
  collectives->barrier();
}

template <class T>
void expect_reduced(const Communicator& world, const Device& device, Collectives& collectives, DType dtype) {
  const int ranks = world.size();
  T product = 1;
  for (int rank = 0; rank < ranks; ++rank) product = static_cast<T>(product * static_cast<T>(rank + 1));
  const auto expect = [&](ReduceOp op, T expected) {
    const NcclArray<T> values(device, std::vector<T>(33, static_cast<T>(world.rank() + 1)));
    collectives.all_reduce(values.data(), 33, dtype, op);
    EXPECT_EQ(values.get(), std::vector<T>(33, expected)) << name_of(dtype) << " " << static_cast<int>(op);
  };
  expect(ReduceOp::sum, static_cast<T>(ranks * (ranks + 1) / 2));
  expect(ReduceOp::product, product);
  expect(ReduceOp::min, 1);
  expect(ReduceOp::max, static_cast<T>(ranks));
  if constexpr (std::is_floating_point_v<T>) expect(ReduceOp::average, static_cast<T>(ranks + 1) / 2);
}

// Case 111.
inline void every_type(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  const int ranks = world.size();
  expect_reduced<float>(world, device, *collectives, DType::float32);
  expect_reduced<double>(world, device, *collectives, DType::float64);
  expect_reduced<std::int32_t>(world, device, *collectives, DType::int32);
  expect_reduced<std::int64_t>(world, device, *collectives, DType::int64);
  expect_reduced<std::uint8_t>(world, device, *collectives, DType::uint8);
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  const auto mine = static_cast<float>(world.rank() + 1);
  const NcclArray<std::uint16_t> halves(device, std::vector<std::uint16_t>(40, float_to_half(mine)));
  collectives->all_reduce(halves.data(), 40, DType::float16, ReduceOp::sum);
  EXPECT_EQ(halves.get(), std::vector<std::uint16_t>(40, float_to_half(sum)));
  const NcclArray<std::uint16_t> brains(device, std::vector<std::uint16_t>(40, float_to_bfloat16(mine)));
  collectives->all_reduce(brains.data(), 40, DType::bfloat16, ReduceOp::average);
  EXPECT_EQ(brains.get(), std::vector<std::uint16_t>(40, float_to_bfloat16(sum / static_cast<float>(ranks))));
  const auto is_last = static_cast<std::uint8_t>(world.rank() == ranks - 1);
  const NcclArray<std::uint8_t> flags(device, std::vector<std::uint8_t>(5, is_last));
  collectives->all_reduce(flags.data(), 5, DType::boolean, ReduceOp::max);
  EXPECT_EQ(flags.get(), std::vector<std::uint8_t>(5, 1));
  flags.set(std::vector<std::uint8_t>(5, is_last));
  collectives->all_reduce(flags.data(), 5, DType::boolean, ReduceOp::min);
  EXPECT_EQ(flags.get(), std::vector<std::uint8_t>(5, ranks == 1 ? 1 : 0));
}

// Case 112.
inline void sizes(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  const std::vector<std::size_t> counts = {0, 1, 2, 3, 63, 64, 65, 4095, 4096, 4097, 70'001};
  std::vector<NcclArray<float>> arrays;
  std::vector<Ticket> tickets;
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t count : counts) {
      arrays.emplace_back(device, count + 1);
      arrays.back().set(counted<float>(world.rank(), count + 1));
      // One element in: not aligned to more than its own size.
      tickets.push_back(collectives->start_all_reduce(arrays.back().data() + 1, count, DType::float32, ReduceOp::sum));
    }
  }
  for (const Ticket ticket : tickets) collectives->wait(ticket);
  for (const NcclArray<float>& array : arrays) {
    std::vector<float> expected = counted_sum<float>(world.size(), array.size());
    expected[0] = counted<float>(world.rank(), 1)[0];
    EXPECT_EQ(array.get(), expected) << array.size();
  }
}

inline void ranges(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  constexpr std::size_t kCount = 3 * Collectives::kPieceElements;
  const BucketMemory bucket = collectives->allocate_bucket(kCount * sizeof(double));
  const NcclArray<double> values(device, bucket);
  values.set(counted<double>(world.rank(), kCount));
  const Ticket ticket = collectives->start_reduce_ranges(values.data(), kCount, DType::float64, ReduceOp::sum);
  const std::vector<double> sum = counted_sum<double>(world.size(), kCount);
  for (const Slice range : {Slice{5, kCount - 9}, Slice{0, 1}, Slice{7, 0}}) {
    int calls = 0;
    collectives->reduce_range(ticket, range, [&](std::size_t begin, const std::byte* piece, std::size_t count) {
      ++calls;
      EXPECT_EQ(begin, range.begin);
      EXPECT_EQ(count, range.count);
      std::vector<double> seen(count);
      device.read(seen.data(), piece, count * sizeof(double));
      const auto from = sum.begin() + static_cast<std::ptrdiff_t>(begin);
      EXPECT_TRUE(std::equal(seen.begin(), seen.end(), from));
    });
    EXPECT_EQ(calls, range.count > 0 ? 1 : 0);
  }
  collectives->barrier();
  EXPECT_THROW(collectives->reduce_range(ticket, {0, 1}, [](std::size_t, const std::byte*, std::size_t) {}),
               std::logic_error);
}

inline void host_memory(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  const int ranks = world.size();
  for (int round = 0; round < 5; ++round) {
    const NcclArray<float> on_device(device, counted<float>(world.rank(), 300));
    std::vector<float> on_host = counted<float>(world.rank(), 200);
    const Ticket first = collectives->start_all_reduce(on_device.data(), 300, DType::float32, ReduceOp::sum);
    const Ticket second = collectives->start_all_reduce(on_host.data(), 200, DType::float32, ReduceOp::sum);
    std::vector<float> taken = counted<float>(world.rank(), 100);
    const Ticket third = collectives->start_reduce_ranges(taken.data(), 100, DType::float32, ReduceOp::sum);
    collectives->reduce_range(third, {0, 100}, [&](std::size_t begin, const std::byte* values, std::size_t count) {
      const auto* const piece = reinterpret_cast<const float*>(values);
      const auto sum = counted_sum<float>(ranks, 100);
      EXPECT_EQ(std::vector<float>(piece, piece + count), std::vector<float>(sum.begin() + begin, sum.end()));
    });
    auto word = static_cast<std::byte>(world.rank());
    collectives->broadcast(std::span(&word, 1), round % ranks);
    EXPECT_EQ(word, static_cast<std::byte>(round % ranks));
    collectives->wait(first);
    collectives->wait(second);
    EXPECT_EQ(on_device.get(), counted_sum<float>(ranks, 300));
    EXPECT_EQ(on_host, counted_sum<float>(ranks, 200));
    std::vector<std::byte> words(static_cast<std::size_t>(ranks));
    const auto mine = static_cast<std::byte>(world.rank() + round);
    collectives->all_gather(std::span(&mine, 1), words);
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(words[rank], static_cast<std::byte>(rank + round));
  }
}

inline void expect_sum_of_ones(Collectives& collectives, const Device& device) {
  const NcclArray<float> value(device, std::vector<float>{1});
  collectives.all_reduce(value.data(), 1, DType::float32, ReduceOp::sum);
  EXPECT_EQ(value.get()[0], static_cast<float>(collectives.world_size()));
}

// Case 118.
inline void split(const Communicator& world, const Device& device) {
  const auto collectives = make(world, device);
  for (int cycle = 0; cycle < 3; ++cycle) {
    const auto part = collectives->split(world.rank() % 2);
    EXPECT_EQ(part->name(), "nccl");
    EXPECT_EQ(part->rank(), world.rank() / 2);
    EXPECT_EQ(part->world_size(), (world.size() + 1 - world.rank() % 2) / 2);
    expect_sum_of_ones(*part, device);
    expect_sum_of_ones(*collectives, device);
  }
}

// Case 125.
inline void again(const Communicator& world, const Device& device) {
  for (int round = 0; round < 3; ++round) {
    const auto collectives = make(world, device);
    const BucketMemory bucket = collectives->allocate_bucket(100);
    expect_sum_of_ones(*collectives, device);
  }
}

}  // namespace lockstep::mpi::nccl_cases
