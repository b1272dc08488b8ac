// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/sampler.hpp>

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text/table.hpp"
#include "data/source/settings.hpp"

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

KeySpec shuffle_key() {
  return keys::boolean("data.shuffle", "true", "Shuffle the training samples before each epoch");
}

KeySpec drop_last_key() {
  return keys::boolean("data.drop_last", "true",
                       "Drop the last incomplete global batch of each epoch. If false, the last batch is filled with "
                       "samples from the start of the epoch");
}

KeySpec repeats_key() {
  const auto todays = [](const std::string& former, const std::string&) { return former == "0" ? "1" : ""; };
  return keys::replacing(
      keys::integer("data.repeats", "1",
                    "default, infinite, torch: number of times that a sample occurs in a row, each with its own "
                    "transform (repeated augmentation)",
                    1, 1000),
      {.key = "data.repeats", .translate = todays});
}

Remainder remainder_of(const Section& data) { return data.boolean("drop_last") ? Remainder::drop : Remainder::repeat; }

/// The data set as it lies or in a new order each epoch, as data.shuffle says.
OrderPtr plain_order(const Section& data, std::int64_t size, std::uint64_t seed) {
  return data.boolean("shuffle") ? shuffled_order(size, seed) : sequential_order(size);
}

Sampler make_default(const Section& data, const SamplerRequest& request) {
  const std::int64_t size = request.dataset->size();
  if (data.boolean("drop_last")) {
    return Sampler(size, request.global_batch_size, request.seed, data.boolean("shuffle"))
        .with_repeats(data.integer("repeats"));
  }
  return Sampler(plain_order(data, size, request.seed), request.global_batch_size, Remainder::repeat,
                 "keyed permutation, filled up")
      .with_repeats(data.integer("repeats"));
}

Sampler make_infinite(const Section& data, const SamplerRequest& request) {
  return Sampler(plain_order(data, request.dataset->size(), request.seed), request.global_batch_size, Remainder::carry,
                 "infinite")
      .with_repeats(data.integer("repeats"));
}

Sampler make_repeat_factor(const Section& data, const SamplerRequest& request) {
  std::vector<std::vector<std::int64_t>> categories;
  for (const std::int64_t label : labels_of(*request.dataset)) {
    categories.push_back(label < 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{label});
  }
  return Sampler(repeat_factor_order(repeat_factors(categories, data.real("repeat_threshold")), request.seed),
                 request.global_batch_size, remainder_of(data), "repeat_factor");
}

Sampler make_identity(const Section& data, const SamplerRequest& request) {
  const IdentityOptions options{.instances = data.integer("instances"), .global_batch_size = request.global_batch_size};
  return Sampler(identity_order(labels_of(*request.dataset), options, request.seed), request.global_batch_size,
                 Remainder::drop, "identity");
}

Sampler make_class_balanced(const Section& data, const SamplerRequest& request) {
  return Sampler(class_balanced_order(labels_of(*request.dataset), request.seed), request.global_batch_size,
                 remainder_of(data), "class_balanced");
}

Sampler make_aspect_ratio(const Section& data, const SamplerRequest& request) {
  OrderPtr order = grouped_order(aspect_groups(aspect_ratios_of(*request.dataset)), request.global_batch_size,
                                 request.seed, data.boolean("shuffle"));
  return Sampler(std::move(order), request.global_batch_size, Remainder::drop, "aspect_ratio");
}

Sampler make_blocks(const Section& data, const SamplerRequest& request) {
  const std::int64_t size = request.dataset->size();
  const BlockOptions options{.blocks = data.integer("blocks"), .global_batch_size = request.global_batch_size};
  return Sampler(block_order(size, plain_order(data, size / options.blocks, request.seed), options),
                 request.global_batch_size, Remainder::drop, "blocks");
}

Sampler make_chunks(const Section& data, const SamplerRequest& request) {
  const std::vector<std::int64_t> chunks = chunks_of(*request.dataset);
  const std::int64_t count = std::ssize(std::set<std::int64_t>(chunks.begin(), chunks.end()));
  const std::int64_t per_window = std::min(data.integer("shuffle_chunks"), count);
  std::string algorithm =
      "chunks, " + std::to_string(per_window) + " of " + std::to_string(count) + " shuffled together";
  if (!data.boolean("drop_last")) algorithm += ", filled up";
  return Sampler(chunk_order(chunks, per_window, request.seed), request.global_batch_size, remainder_of(data),
                 std::move(algorithm));
}

Sampler make_torch(const Section& data, const SamplerRequest& request) {
  const std::int64_t size = request.dataset->size();
  return Sampler(data.boolean("shuffle") ? torch_order(size, request.seed) : sequential_order(size),
                 request.global_batch_size, remainder_of(data), "torch")
      .with_repeats(data.integer("repeats"));
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

const std::vector<SamplerRow>& builtin_samplers() {
  static const std::vector<SamplerRow> rows = {
      {.name = "default",
       .help = "Every sample once per epoch",
       .keys = {shuffle_key(), drop_last_key(), repeats_key()},
       .make = make_default},
      {.name = "infinite",
       .help = "Every sample once per epoch; a batch may span two epochs, so that no sample is dropped or repeated",
       .keys = {shuffle_key(), repeats_key()},
       .make = make_infinite},
      {.name = "repeat_factor",
       .help = "Samples of rare classes are repeated more often",
       .keys = {drop_last_key(), keys::real_above("data.repeat_threshold", 0, 1, "0.001",
                                                  "repeat_factor: a class with a frequency f below this threshold is "
                                                  "repeated sqrt(threshold / f) times")},
       .make = make_repeat_factor},
      {.name = "identity",
       .help = "Batches with data.instances samples of each of several classes",
       .keys = {keys::integer("data.instances", "4",
                              "identity: number of samples per class in a batch; must divide train.global_batch_size",
                              1)},
       .make = make_identity},
      {.name = "class_balanced",
       .help = "All classes with equal frequency, regardless of their number of samples",
       .keys = {drop_last_key()},
       .make = make_class_balanced},
      {.name = "aspect_ratio",
       .help = "Batches that contain either only landscape or only portrait images",
       .keys = {shuffle_key()},
       .make = make_aspect_ratio},
      {.name = "blocks",
       .help = "Each rank reads one contiguous block of the data set",
       .keys = {shuffle_key(),
                keys::integer(
                    "data.blocks", "1",
                    "blocks: number of blocks of the data set. If it is the number of ranks, each reads one block", 1)},
       .make = make_blocks},
      {.name = "chunks",
       .help = "The chunks of files in random order; the samples of data.shuffle_chunks chunks are shuffled together",
       .keys = {drop_last_key(), keys::integer("data.shuffle_chunks", "8",
                                               "chunks: number of chunks with samples that are shuffled together. If "
                                               "data.chunk_cache_mb cannot hold them all, they are unpacked repeatedly",
                                               1)},
       .make = make_chunks},
      {.name = "torch",
       .help = "The same global batches as PyTorch's DistributedSampler with the seed run.seed",
       .keys = {shuffle_key(), drop_last_key(), repeats_key()},
       .make = make_torch},
  };
  return rows;
}

Sampler make_sampler(const Section& data, const SamplerRequest& request, const std::vector<SamplerRow>& samplers) {
  const SamplerRow& row = find_row(samplers, DataSettings::from(data).sampler, data.cite("sampler"));
  try {
    return row.make(data, request);
  } catch (const std::invalid_argument& error) {
    throw ConfigError(data.cite("sampler") + ": " + error.what());
  }
}

}  // namespace lockstep::data
