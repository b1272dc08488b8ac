// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/order.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::data {

/// The positions [begin, begin + count) of a global batch, or of a data set, that belong to one rank.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Divides `total` positions among ranks: sizes differ by at most one, the first ranks get the larger ones.
Share share_of(std::int64_t total, int rank, int world_size);

/// What this rank evaluates: its share of the data set in the data set's order. None is lost or doubled, whatever the
/// number of ranks; a rank without samples gets an empty list and must still take part in every collective.
/// @throws DataError  the data set is empty
std::vector<std::int64_t> inference_indices(std::int64_t size, int rank, int world_size);

/// What becomes of the positions at an epoch's end that do not fill a global batch.
enum class Remainder {
  drop,    ///< they are left out
  repeat,  ///< the last batch is filled from the beginning of the same epoch's order, again and again if need be
  keep,    ///< the last batch is smaller: shares beyond its end are cut
  carry,   ///< the batch goes on with the next epoch's order: an infinite stream, without epochs as far as it can see
};

/// Which samples form a training step: a pure function of (order, epoch, step in the epoch).
///
/// Step k of an epoch takes positions [k * global_batch_size, (k + 1) * global_batch_size) of the epoch's order. The
/// ranks' shares joined in rank order are the global batch, so neither the order nor the batch depends on how many
/// ranks there are. A global batch of one sample per rank is the interleaved rule of PyTorch and mmengine: rank r takes
/// positions r, r + world_size, ...
class Sampler {
 public:
  /// A keyed permutation of the data set, or with `shuffle` off the data set as it lies; what remains is dropped.
  /// @param size               samples in the data set
  /// @param global_batch_size  samples per step over all ranks; in [1, size]
  /// @throws ConfigError  the data set is smaller than one global batch
  Sampler(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle = true);
  /// @param algorithm  what a checkpoint calls it
  /// @throws ConfigError  with Remainder::drop: an epoch is shorter than one global batch
  Sampler(OrderPtr order, std::int64_t global_batch_size, Remainder remainder, std::string algorithm = "given order");

  /// With Remainder::carry: whole batches in the length of an epoch, or 1.
  std::int64_t steps_per_epoch() const noexcept;
  std::int64_t global_batch_size() const noexcept { return global_batch_size_; }
  /// A run cannot go on with the positions of another algorithm.
  const std::string& algorithm() const noexcept { return algorithm_; }
  /// Data set indices of positions [share.begin, share.begin + share.count) of the global batch of a step; fewer only
  /// in the last batch of Remainder::keep.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;

 private:
  OrderPtr order_;
  std::int64_t global_batch_size_;
  Remainder remainder_;
  std::string algorithm_;
};

}  // namespace lockstep::data
