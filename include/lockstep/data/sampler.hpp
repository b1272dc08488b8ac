// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/core/section.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

class Dataset;
struct Source;

/// In which order the samples of an epoch come: a pure function of (epoch, position), the same on every rank. Its state
/// is the position alone, so a resumed run continues by arithmetic. May be called from several threads at once.
class Order {
 public:
  virtual ~Order() = default;
  /// Positions of an epoch, the same in every epoch; >= 1.
  virtual std::int64_t length() const = 0;
  /// Data set indices at positions [begin, begin + count) of an epoch.
  /// @param epoch  >= 0
  /// @param begin  [begin, begin + count) lies in [0, length())
  virtual std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const = 0;
};

using OrderPtr = std::shared_ptr<const Order>;

/// The data set as it lies. @throws DataError  size < 1
OrderPtr sequential_order(std::int64_t size);
/// A keyed permutation of the data set, another one in each epoch. @throws DataError  size < 1
OrderPtr shuffled_order(std::int64_t size, std::uint64_t seed);
/// The permutations of torch.utils.data.DistributedSampler: torch.randperm under the seed `seed + epoch`.
/// @throws DataError  size < 1
OrderPtr torch_order(std::int64_t size, std::uint64_t seed);
/// `order` of a part of a data set: position p gives chosen[order's index at p].
/// @throws std::invalid_argument  the order is not one of chosen.size() samples
OrderPtr subset_order(OrderPtr order, std::vector<std::int64_t> chosen);

struct BlockOptions {
  std::int64_t blocks = 1;             ///< parts of the data set, each kept together: as many as there are ranks
  std::int64_t global_batch_size = 1;  ///< a multiple of `blocks`
};
/// Every rank reads only its own contiguous block of size / blocks samples: part r of a global batch comes from block
/// r, at the places that `inside` (an order of one block) gives. What does not fill a block, or a block's last part of
/// a batch, is left out.
/// @throws ConfigError  the batch does not divide, or a block has less than its part of one batch
OrderPtr block_order(std::int64_t size, OrderPtr inside, const BlockOptions& options);

/// Sample i comes floor(f) times an epoch, and once more with the probability f - floor(f), f = factors[i]; shuffled.
/// An epoch has as many positions as the factors' sum, rounded: a longer draw is cut, a shorter one continues with its
/// beginning.
/// @param factors  each finite and >= 0
/// @throws ConfigError  a factor is not, or the sum rounds to 0
OrderPtr repeat_factor_order(std::vector<double> factors, std::uint64_t seed);

struct IdentityOptions {
  std::int64_t instances = 4;          ///< samples of a class that stand together; divides the batch
  std::int64_t global_batch_size = 4;  ///< of global_batch_size / instances distinct classes
};
/// Batches of P classes with K samples each (re-identification): classes are drawn without replacement, each gives the
/// next K of its shuffled samples (one with fewer than K gives some twice), and leaves when fewer than K remain. When
/// fewer than P classes are left all return. Cut with the global batch size given here.
/// @param labels  class of each sample
/// @throws ConfigError  K does not divide the batch, or there are fewer than P classes
OrderPtr identity_order(std::span<const std::int64_t> labels, const IdentityOptions& options, std::uint64_t seed);

/// Every class comes equally often, however few samples it has: of each run of C positions, C the number of classes,
/// every class has one, in a random order; a class goes through its samples, shuffled, before one comes again. An epoch
/// has as many positions as the data set has samples.
/// @param labels  class of each sample; negative ones are never drawn
/// @throws DataError  no sample has a class
OrderPtr class_balanced_order(std::span<const std::int64_t> labels, std::uint64_t seed);

/// Batches of samples of one group only (such as an aspect ratio), in the order in which the groups of a shuffled (or,
/// with `shuffle` off, sequential) epoch fill them. What does not fill a batch of its group is left out.
/// @param groups      group of each sample
/// @param batch_size  samples that stand together; the global batch size is this or a divisor of it
/// @throws ConfigError  a group has less than one batch: it would never be seen
OrderPtr grouped_order(std::vector<std::int64_t> groups, std::int64_t batch_size, std::uint64_t seed,
                       bool shuffle = true);

/// Factors of a repeat_factor_order that show rare categories more often: a category in the part f of the samples has
/// max(1, sqrt(threshold / f)), or max(1, threshold / f); a sample has the largest of its categories', 1 without any.
/// @param categories  of each sample
/// @throws ConfigError  threshold is not above 0
std::vector<double> repeat_factors(const std::vector<std::vector<std::int64_t>>& categories, double threshold,
                                   bool takes_root = true);

/// How often each sample comes, given a draw in [0, 1) for each: floor(f), and one more if the draw is below the rest.
std::vector<std::int64_t> repeated(std::span<const double> factors, std::span<const double> draws);

/// The first floor(size * ratio) of a permutation of a data set: what a subset_order takes.
/// @throws ConfigError  ratio is outside (0, 1], or leaves no sample
std::vector<std::int64_t> subset_of(std::vector<std::int64_t> permutation, double ratio);

/// 0 for images wider than high, 1 for the others: groups of a grouped_order.
/// @param ratios  width / height of each sample
std::vector<std::int64_t> aspect_groups(std::span<const double> ratios);

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
  carry,   ///< the batch continues with the next epoch's order: an infinite stream, without epochs as far as it can see
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
  /// A run cannot continue with the positions of another algorithm.
  const std::string& algorithm() const noexcept { return algorithm_; }
  /// The draws of positions [share.begin, share.begin + share.count) of the global batch of a step; fewer only in the
  /// last batch of Remainder::keep.
  std::vector<batch::Draw> draws(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;
  /// Their indices in the data set.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;

 private:
  OrderPtr order_;
  std::int64_t global_batch_size_;
  Remainder remainder_;
  std::string algorithm_;
};

/// What a sampler is made for.
struct SamplerRequest {
  const Dataset* dataset;          ///< outlives the call only
  std::int64_t global_batch_size;  ///< samples per step over all ranks
  std::uint64_t seed;              ///< of the run
};

/// A row of the table of samplers. A user's program adds rows to a copy of builtin_samplers().
struct SamplerRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< of section `data`, in addition to the common ones
  /// @throws ConfigError, DataError  Not collective: each rank makes the same for itself
  std::function<Sampler(const Section& data, const SamplerRequest& request)> make;
};

/// The built-in samplers: default, infinite, repeat_factor, identity, class_balanced, aspect_ratio, blocks, torch.
const std::vector<SamplerRow>& builtin_samplers();

/// Makes what `data.sampler` names.
/// @throws ConfigError  unknown name, with the known ones; and whatever the row throws
Sampler make_sampler(const Section& data, const SamplerRequest& request,
                     const std::vector<SamplerRow>& samplers = builtin_samplers());

/// The keys of section `data` with those of these samplers.
KeySpecs data_keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers);

}  // namespace lockstep::data
