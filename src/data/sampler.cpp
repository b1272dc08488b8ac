// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::data {

namespace {

OrderPtr plain_order(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle) {
  if (global_batch_size < 1) throw std::invalid_argument("Sampler: global_batch_size must be at least 1");
  if (size < global_batch_size) {
    throw ConfigError("the training data have " + std::to_string(size) +
                      " samples, fewer than train.global_batch_size = " + std::to_string(global_batch_size) +
                      "; lower train.global_batch_size or use more data");
  }
  return shuffle ? shuffled_order(size, seed) : sequential_order(size);
}

}  // namespace

Share share_of(std::int64_t total, int rank, int world_size) {
  if (total < 0 || rank < 0 || rank >= world_size) throw std::invalid_argument("share_of: the rank does not exist");
  const std::int64_t base = total / world_size;
  const std::int64_t larger = total % world_size;  // so many ranks get one more
  return {.begin = rank * base + std::min<std::int64_t>(rank, larger), .count = base + (rank < larger ? 1 : 0)};
}

std::vector<std::int64_t> inference_indices(std::int64_t size, int rank, int world_size) {
  if (size < 1) throw DataError("there are no samples to evaluate");
  const Share share = share_of(size, rank, world_size);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(share.count));
  std::iota(indices.begin(), indices.end(), share.begin);
  return indices;
}

Sampler::Sampler(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle)
    : Sampler(plain_order(size, global_batch_size, seed, shuffle), global_batch_size, Remainder::drop,
              "keyed permutation") {}

Sampler::Sampler(OrderPtr order, std::int64_t global_batch_size, Remainder remainder, std::string algorithm)
    : order_(std::move(order)),
      global_batch_size_(global_batch_size),
      remainder_(remainder),
      algorithm_(std::move(algorithm)) {
  if (!order_) throw std::invalid_argument("Sampler: the order is missing");
  if (global_batch_size < 1) throw std::invalid_argument("Sampler: global_batch_size must be at least 1");
  if (remainder == Remainder::drop && order_->length() < global_batch_size) {
    throw ConfigError("an epoch has " + std::to_string(order_->length()) +
                      " samples, fewer than train.global_batch_size = " + std::to_string(global_batch_size) +
                      "; lower train.global_batch_size or set data.drop_last = false");
  }
}

Sampler Sampler::with_repeats(std::int64_t repeats) const {
  if (repeats == 1) return *this;
  return {repeated_order(order_, repeats), global_batch_size_, remainder_,
          algorithm_ + ", repeated " + std::to_string(repeats) + " times"};
}

std::int64_t Sampler::steps_per_epoch() const noexcept {
  const std::int64_t length = order_->length();
  if (remainder_ == Remainder::drop) return length / global_batch_size_;
  if (remainder_ == Remainder::carry) return std::max<std::int64_t>(1, length / global_batch_size_);
  return (length + global_batch_size_ - 1) / global_batch_size_;
}

std::vector<batch::Draw> Sampler::draws(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const {
  if (epoch < 0 || step_in_epoch < 0 || step_in_epoch >= steps_per_epoch()) {
    throw std::out_of_range("Sampler: step out of range: step " + std::to_string(step_in_epoch) + " in epoch " +
                            std::to_string(epoch));
  }
  if (share.begin < 0 || share.count < 0 || share.begin + share.count > global_batch_size_) {
    throw std::out_of_range("Sampler: the range is not part of the global batch");
  }
  const std::int64_t length = order_->length();
  std::int64_t position = step_in_epoch * global_batch_size_ + share.begin;
  if (remainder_ == Remainder::carry) {
    position += epoch * steps_per_epoch() * global_batch_size_;
    epoch = position / length;
  } else if (remainder_ == Remainder::keep) {
    share.count = std::clamp<std::int64_t>(length - position, 0, share.count);
  }
  position %= length;
  std::vector<batch::Draw> draws;
  while (share.count > 0) {
    const std::int64_t count = std::min(share.count, length - position);
    for (const std::int64_t index : order_->indices(epoch, position, count)) {
      draws.push_back({.index = index, .epoch = epoch, .position = position++});
    }
    share.count -= count;
    position = 0;
    if (remainder_ == Remainder::carry) ++epoch;
  }
  return draws;
}

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const {
  std::vector<std::int64_t> indices;
  for (const batch::Draw& draw : draws(epoch, step_in_epoch, share)) indices.push_back(draw.index);
  return indices;
}

}  // namespace lockstep::data
