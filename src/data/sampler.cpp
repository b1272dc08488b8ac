// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lockstep::data {

Share share_of(std::int64_t total, int rank, int world_size) {
  if (total < 0 || rank < 0 || rank >= world_size) throw std::invalid_argument("share_of: no such rank");
  const std::int64_t base = total / world_size;
  const std::int64_t larger = total % world_size;  // so many ranks get one more
  return {.begin = rank * base + std::min<std::int64_t>(rank, larger), .count = base + (rank < larger ? 1 : 0)};
}

Sampler::Sampler(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle)
    : size_(size), global_batch_size_(global_batch_size), seed_(seed), shuffle_(shuffle) {
  if (global_batch_size < 1) throw std::invalid_argument("Sampler: global_batch_size must be at least 1");
  if (size < global_batch_size) {
    throw ConfigError("the training data has " + std::to_string(size) +
                      " samples, fewer than train.global_batch_size = " + std::to_string(global_batch_size) +
                      "; lower train.global_batch_size or give more data");
  }
}

std::vector<std::int64_t> Sampler::indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const {
  if (epoch < 0 || step_in_epoch < 0 || step_in_epoch >= steps_per_epoch()) {
    throw std::out_of_range("Sampler: no step " + std::to_string(step_in_epoch) + " in epoch " + std::to_string(epoch));
  }
  if (share.begin < 0 || share.count < 0 || share.begin + share.count > global_batch_size_) {
    throw std::out_of_range("Sampler: the share is not part of the global batch");
  }
  std::vector<std::int64_t> indices(static_cast<std::size_t>(share.count));
  std::int64_t position = step_in_epoch * global_batch_size_ + share.begin;
  for (std::int64_t& index : indices) index = position++;
  if (shuffle_) {
    const std::uint64_t key = random::bits(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch));
    const random::Permutation order(static_cast<std::uint64_t>(size_), key);
    for (std::int64_t& index : indices) {
      index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(index)));
    }
  }
  return indices;
}

}  // namespace lockstep::data
