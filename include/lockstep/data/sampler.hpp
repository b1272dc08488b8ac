// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>
#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep::data {

class Dataset;
struct Source;

/// The order of the samples in an epoch: a pure function of (epoch, position), the same on every rank. The position is
/// its only state. Thread-safe.
class Order {
 public:
  virtual ~Order() = default;
  /// The number of positions of every epoch; >= 1.
  virtual std::int64_t length() const = 0;
  /// Data set indices at positions [begin, begin + count) of an epoch.
  /// @param epoch  >= 0
  /// @param begin  [begin, begin + count) lies in [0, length())
  virtual std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const = 0;
};

using OrderPtr = std::shared_ptr<const Order>;

/// The order of the data set. Throws DataError if size < 1.
OrderPtr sequential_order(std::int64_t size);
/// A keyed permutation of the data set, different in each epoch. Throws DataError if size < 1.
OrderPtr shuffled_order(std::int64_t size, std::uint64_t seed);
/// The permutations of torch.utils.data.DistributedSampler: torch.randperm under the seed `seed + epoch`.
/// @throws DataError  size < 1
OrderPtr torch_order(std::int64_t size, std::uint64_t seed);
/// An order of a subset of a data set: position p has the index chosen[index of `order` at p].
/// @throws std::invalid_argument  the order does not have chosen.size() samples
OrderPtr subset_order(OrderPtr order, std::vector<std::int64_t> chosen);

/// Repeated augmentation: every sample of `order` occurs `repeats` times in a row, and an epoch keeps its length, so
/// that it contains only the first length / repeats samples of its permutation.
/// @throws std::invalid_argument  repeats < 1
OrderPtr repeated_order(OrderPtr order, std::int64_t repeats);

struct BlockOptions {
  std::int64_t blocks = 1;             ///< contiguous blocks of the data set; equal to the number of ranks
  std::int64_t global_batch_size = 1;  ///< a multiple of `blocks`
};
/// Every rank reads only its own contiguous block of size / blocks samples: part r of a global batch consists of
/// samples of block r, in the order `inside` (of one block). Samples that do not fill a block, or the last part of a
/// batch, are dropped.
/// @throws ConfigError  `blocks` does not divide the batch, or a block is smaller than its part of one batch
OrderPtr block_order(std::int64_t size, OrderPtr inside, const BlockOptions& options);

/// Sample i occurs floor(f) times per epoch, and once more with the probability f - floor(f), where f = factors[i];
/// shuffled. The length of an epoch is the rounded sum of the factors: a longer draw is truncated, a shorter one is
/// repeated from its start.
/// @param factors  each finite and >= 0
/// @throws ConfigError  a factor is outside this range, or the sum rounds to 0
OrderPtr repeat_factor_order(std::vector<double> factors, std::uint64_t seed);

struct IdentityOptions {
  std::int64_t instances = 4;          ///< consecutive samples of one class; must divide the batch
  std::int64_t global_batch_size = 4;  ///< samples of global_batch_size / instances distinct classes
};
/// Batches of P classes with K samples each (re-identification): classes are drawn without replacement. Each class
/// provides the next K of its shuffled samples (a class with fewer than K samples repeats some) until fewer than K
/// remain. When fewer than P classes remain, all classes start again. Use it with the global batch size given here.
/// @param labels  class of each sample
/// @throws ConfigError  K does not divide the batch, or there are fewer than P classes
OrderPtr identity_order(std::span<const std::int64_t> labels, const IdentityOptions& options, std::uint64_t seed);

/// All classes have the same frequency, regardless of their number of samples. In each group of C positions, where C is
/// the number of classes, every class occurs once, in random order. A class uses all of its samples, shuffled, before
/// one is repeated. The length of an epoch is the size of the data set.
/// @param labels  class of each sample; samples with negative labels are never drawn
/// @throws DataError  all labels are negative
OrderPtr class_balanced_order(std::span<const std::int64_t> labels, std::uint64_t seed);

/// Batches with samples of one group only (such as an aspect ratio), in the order in which a shuffled (or, without
/// `shuffle`, sequential) epoch completes them. Samples that do not fill a batch of their group are dropped.
/// @param groups      group of each sample
/// @param batch_size  consecutive samples of one group; a multiple of the global batch size
/// @throws ConfigError  a group has less than one batch of samples and would never be used
OrderPtr grouped_order(std::vector<std::int64_t> groups, std::int64_t batch_size, std::uint64_t seed,
                       bool shuffle = true);

/// The chunks of a data set in random order. The samples of `chunks_per_window` chunks that follow one another are
/// shuffled together, so that few chunks are in use at the same time.
/// @param chunks  chunk of each sample
/// @throws DataError  there are no samples
OrderPtr chunk_order(std::span<const std::int64_t> chunks, std::int64_t chunks_per_window, std::uint64_t seed);

/// Factors of a repeat_factor_order that repeat rare categories: a category that occurs in the fraction f of the
/// samples has the factor max(1, sqrt(threshold / f)) or, without takes_root, max(1, threshold / f). The factor of a
/// sample is the maximum over its categories, or 1 without categories.
/// @param categories  categories of each sample
/// @throws ConfigError  threshold <= 0
std::vector<double> repeat_factors(const std::vector<std::vector<std::int64_t>>& categories, double threshold,
                                   bool takes_root = true);

/// The number of repetitions of each sample for a draw in [0, 1): floor(f), plus one if the draw is less than f -
/// floor(f).
std::vector<std::int64_t> repeated(std::span<const double> factors, std::span<const double> draws);

/// The first floor(size * ratio) indices of a permutation of a data set, for subset_order.
/// @throws ConfigError  ratio is outside (0, 1], or the result is empty
std::vector<std::int64_t> subset_of(std::vector<std::int64_t> permutation, double ratio);

/// Groups for grouped_order: 0 for images with width > height, 1 for others.
/// @param ratios  width / height of each sample
std::vector<std::int64_t> aspect_groups(std::span<const double> ratios);

/// The positions [begin, begin + count) of a global batch, or of a data set, that belong to one rank.
struct Share {
  std::int64_t begin = 0;
  std::int64_t count = 0;
};

/// Divides `total` positions among ranks. The sizes differ by at most one; the first ranks have the larger ones.
Share share_of(std::int64_t total, int rank, int world_size);

/// The samples that this rank evaluates: its share of the data set, in order. For any number of ranks, each sample
/// occurs exactly once. A rank without samples gets an empty list and must still call every collective.
/// @throws DataError  the data set is empty
std::vector<std::int64_t> inference_indices(std::int64_t size, int rank, int world_size);

/// The use of the positions at the end of an epoch that do not fill a global batch.
enum class Remainder {
  drop,    ///< they are dropped
  repeat,  ///< the last batch is filled from the start of the epoch, repeatedly if necessary
  keep,    ///< the last batch is smaller; shares beyond its end are truncated
  carry,   ///< the batch continues with the next epoch: an infinite stream without epochs
};

/// The samples of each training step: a pure function of (order, epoch, step in the epoch).
///
/// Step k of an epoch takes positions [k * global_batch_size, (k + 1) * global_batch_size) of the epoch's order. The
/// ranks' shares joined in rank order are the global batch, so neither the order nor the batch depends on how many
/// ranks there are. A global batch of one sample per rank is the interleaved rule of PyTorch and mmengine: rank
/// r takes positions r, r + world_size, ...
class Sampler {
 public:
  /// A keyed permutation of the data set or, without `shuffle`, the data set in order; the remainder is dropped.
  /// @param size               samples in the data set
  /// @param global_batch_size  samples per step over all ranks; in [1, size]
  /// @throws ConfigError  the data set is smaller than one global batch
  Sampler(std::int64_t size, std::int64_t global_batch_size, std::uint64_t seed, bool shuffle = true);
  /// @param algorithm  name of the order in checkpoints
  /// @throws ConfigError  with Remainder::drop: an epoch is shorter than one global batch
  Sampler(OrderPtr order, std::int64_t global_batch_size, Remainder remainder, std::string algorithm = "given order");

  /// The same sampler with the order repeated_order. One repetition changes nothing.
  Sampler with_repeats(std::int64_t repeats) const;

  /// Remainder::carry: the number of complete batches in the length of an epoch, at least 1.
  std::int64_t steps_per_epoch() const noexcept;
  std::int64_t global_batch_size() const noexcept { return global_batch_size_; }
  /// The name of the order. A run cannot resume with another algorithm, because positions have another meaning there.
  const std::string& algorithm() const noexcept { return algorithm_; }
  /// The draws of positions [share.begin, share.begin + share.count) of the global batch of a step; fewer only in the
  /// last batch of Remainder::keep.
  std::vector<batch::Draw> draws(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;
  /// The indices of these draws in the data set.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t step_in_epoch, Share share) const;

 private:
  OrderPtr order_;
  std::int64_t global_batch_size_;
  Remainder remainder_;
  std::string algorithm_;
};

/// The arguments for the creation of a sampler.
struct SamplerRequest {
  const Dataset* dataset;          ///< valid during the call only
  std::int64_t global_batch_size;  ///< samples per step over all ranks
  std::uint64_t seed;              ///< seed of the run
};

/// A row of the table of samplers. A program can append rows to engine::Registry::samplers.
struct SamplerRow {
  std::string name;
  std::string help;
  KeySpecs keys;  ///< keys of section `data`, in addition to the common ones
  /// @throws ConfigError, DataError  not collective: each rank creates the same sampler
  std::function<Sampler(const Section& data, const SamplerRequest& request)> make;
};

/// The built-in samplers: default, infinite, repeat_factor, identity, class_balanced, aspect_ratio, blocks, chunks,
/// torch.
const std::vector<SamplerRow>& builtin_samplers();

/// Creates the sampler that `data.sampler` selects.
/// @throws ConfigError  the name is unknown (the message lists the known names); also the errors of the row
Sampler make_sampler(const Section& data, const SamplerRequest& request,
                     const std::vector<SamplerRow>& samplers = builtin_samplers());

/// The keys of section `data`, including those of these samplers.
KeySpecs data_keys(const std::vector<Source>& sources, const std::vector<SamplerRow>& samplers);

}  // namespace lockstep::data
