// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text/text.hpp"
#include "data/epoch_list.hpp"
#include "data/torch_generator.hpp"

namespace lockstep::data {

namespace {

class Sequential : public Order {
 public:
  explicit Sequential(std::int64_t size) : size_(require_samples(size)) {}
  std::int64_t length() const override { return size_; }
  IndexList indices(std::int64_t /*epoch*/, std::int64_t begin, std::int64_t count) const override {
    IndexList indices(static_cast<std::size_t>(count));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  }

 private:
  std::int64_t size_;
};

class Shuffled : public Order {
 public:
  Shuffled(std::int64_t size, std::uint64_t seed) : size_(require_samples(size)), seed_(seed) {}
  std::int64_t length() const override { return size_; }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    const std::uint64_t key = random::bits(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch));
    const random::Permutation order(static_cast<std::uint64_t>(size_), key);
    IndexList indices(static_cast<std::size_t>(count));
    for (std::int64_t& index : indices) {
      index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(begin++)));
    }
    return indices;
  }

 private:
  std::int64_t size_;
  std::uint64_t seed_;
};

class Repeated : public Order {
 public:
  Repeated(OrderPtr order, std::int64_t repeats) : order_(std::move(order)), repeats_(repeats) {
    if (repeats < 1) throw std::invalid_argument("repeated_order: repeats must be at least 1");
  }
  std::int64_t length() const override { return order_->length(); }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    if (count == 0) return {};
    const std::int64_t first = begin / repeats_;
    const std::int64_t last = (begin + count - 1) / repeats_;
    const IndexList distinct = order_->indices(epoch, first, last - first + 1);
    IndexList indices;
    for (std::int64_t p = begin; p < begin + count; ++p) {
      indices.push_back(distinct[static_cast<std::size_t>(p / repeats_ - first)]);
    }
    return indices;
  }

 private:
  OrderPtr order_;
  std::int64_t repeats_;
};

class TorchOrder : public EpochList {
 public:
  TorchOrder(std::int64_t size, std::uint64_t seed) : size_(require_samples(size)), seed_(seed) {}
  std::int64_t length() const override { return size_; }

 private:
  IndexList list(std::int64_t epoch) const override {
    return TorchGenerator(seed_ + static_cast<std::uint64_t>(epoch)).permutation(size_);
  }

  std::int64_t size_;
  std::uint64_t seed_;
};

class Subset : public Order {
 public:
  Subset(OrderPtr order, IndexList chosen) : order_(std::move(order)), chosen_(std::move(chosen)) {
    if (order_->length() != static_cast<std::int64_t>(chosen_.size())) {
      throw std::invalid_argument("subset_order: an order of " + std::to_string(order_->length()) + " for " +
                                  std::to_string(chosen_.size()) + " chosen samples");
    }
  }
  std::int64_t length() const override { return order_->length(); }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    IndexList indices = order_->indices(epoch, begin, count);
    for (std::int64_t& index : indices) index = chosen_.at(static_cast<std::size_t>(index));
    return indices;
  }

 private:
  OrderPtr order_;
  IndexList chosen_;
};

class Blocks : public Order {
 public:
  Blocks(std::int64_t size, OrderPtr inside, const BlockOptions& options) : inside_(std::move(inside)) {
    if (options.blocks < 1 || options.global_batch_size < 1 || options.global_batch_size % options.blocks != 0) {
      throw ConfigError("a global batch of " + std::to_string(options.global_batch_size) +
                        " samples cannot be divided among " + std::to_string(options.blocks) + " blocks");
    }
    block_ = require_samples(size) / options.blocks;
    part_ = options.global_batch_size / options.blocks;
    batch_ = options.global_batch_size;
    if (block_ < part_) {
      throw ConfigError("a block has " + std::to_string(block_) + " samples, fewer than its " + std::to_string(part_) +
                        " of a global batch");
    }
    if (inside_->length() != block_) throw std::invalid_argument("block_order: the order is not one of a block");
  }
  std::int64_t length() const override { return block_ / part_ * batch_; }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    IndexList indices;
    for (std::int64_t position = begin; position < begin + count; ++position) {
      const std::int64_t within = position % batch_;
      const std::int64_t place = position / batch_ * part_ + within % part_;
      indices.push_back(within / part_ * block_ + inside_->indices(epoch, place, 1).front());
    }
    return indices;
  }

 private:
  OrderPtr inside_;
  std::int64_t block_ = 0;
  std::int64_t part_ = 0;
  std::int64_t batch_ = 0;
};

}  // namespace

IndexList EpochList::indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const {
  const std::shared_ptr<const IndexList> whole = remembered(epoch);
  return {whole->begin() + begin, whole->begin() + begin + count};
}

std::shared_ptr<const IndexList> EpochList::remembered(std::int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const IndexList>& found = lists_[epoch];
  if (found) return found;
  found = std::make_shared<const IndexList>(list(epoch));
  const std::shared_ptr<const IndexList> made = found;
  while (lists_.size() > 2) lists_.erase(lists_.begin()->first == epoch ? --lists_.end() : lists_.begin());
  return made;
}

std::map<std::int64_t, IndexList> by_label(std::span<const std::int64_t> labels) {
  std::map<std::int64_t, IndexList> classes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) classes[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  return classes;
}

std::int64_t require_samples(std::int64_t size) {
  if (size < 1) throw DataError("the training data have no samples");
  return size;
}

OrderPtr sequential_order(std::int64_t size) { return std::make_shared<Sequential>(size); }

OrderPtr shuffled_order(std::int64_t size, std::uint64_t seed) { return std::make_shared<Shuffled>(size, seed); }

OrderPtr torch_order(std::int64_t size, std::uint64_t seed) { return std::make_shared<TorchOrder>(size, seed); }

OrderPtr repeated_order(OrderPtr order, std::int64_t repeats) {
  return std::make_shared<Repeated>(std::move(order), repeats);
}

OrderPtr subset_order(OrderPtr order, IndexList chosen) {
  return std::make_shared<Subset>(std::move(order), std::move(chosen));
}

OrderPtr block_order(std::int64_t size, OrderPtr inside, const BlockOptions& options) {
  return std::make_shared<Blocks>(size, std::move(inside), options);
}

IndexList subset_of(IndexList permutation, double ratio) {
  if (!(ratio > 0 && ratio <= 1)) throw ConfigError("a subset needs a ratio in (0, 1], not " + number_text(ratio));
  const auto count = static_cast<std::size_t>(static_cast<double>(permutation.size()) * ratio);
  if (count == 0) {
    throw ConfigError("the ratio " + number_text(ratio) + " of " + std::to_string(permutation.size()) +
                      " samples leaves none");
  }
  permutation.resize(count);
  return permutation;
}

}  // namespace lockstep::data
