// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::data {

/// The positions [begin, begin + count) of a global batch, or of a data set, that belong to one rank.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Divides `total` positions among ranks: sizes differ by at most one, the first ranks get the larger ones.
Share share_of(std::int64_t total, int rank, int world_size);

/// Which samples form a training step: a pure function of (seed, epoch, step in the epoch).
///
/// The order of an epoch is a keyed permutation of the data set; step k of the epoch takes positions
/// [k * global_batch_size, (k + 1) * global_batch_size) and the last, incomplete batch is left out. The ranks' shares
/// joined in rank order are the global batch, so neither the order nor the batch depends on how many ranks there are.
class Sampler {
 public:
  /// @param size               samples in the data set
  /// @param global_batch_size  samples per step over all ranks; in [1, size]
  /// @throws ConfigError  the data set is smaller than one global batch
  Sampler(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle = true);

  std::int64_t steps_per_epoch() const noexcept { return size_ / global_batch_size_; }
  std::int64_t global_batch_size() const noexcept { return global_batch_size_; }
  /// Data set indices of positions [share.begin, share.begin + share.count) of the global batch of a step.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;

 private:
  std::int64_t size_;
  std::int64_t global_batch_size_;
  std::uint64_t seed_;
  bool shuffle_;
};

}  // namespace lockstep::data
