// SPDX-License-Identifier: BSD-3-Clause
#include "data/order.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <map>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text/text.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kLargest = 0xFFFFFFFF / 20;  // PyTorch draws 64 bits at a time for larger sizes

class FunctionOrder : public Order {
 public:
  using Indices = std::function<IndexList(std::int64_t epoch, std::int64_t begin, std::int64_t count)>;

  FunctionOrder(std::int64_t length, Indices indices) : length_(length), indices_(std::move(indices)) {}
  std::int64_t length() const override { return length_; }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    return indices_(epoch, begin, count);
  }

 private:
  std::int64_t length_;
  Indices indices_;
};

/// The lists of the two epochs last requested.
class RecentLists {
 public:
  explicit RecentLists(std::function<IndexList(std::int64_t epoch)> list) : list_(std::move(list)) {}

  std::shared_ptr<const IndexList> of_epoch(std::int64_t epoch) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<const IndexList>& found = lists_[epoch];
    if (found) return found;
    found = std::make_shared<const IndexList>(list_(epoch));
    const std::shared_ptr<const IndexList> made = found;
    while (lists_.size() > 2) lists_.erase(lists_.begin()->first == epoch ? --lists_.end() : lists_.begin());
    return made;
  }

 private:
  std::function<IndexList(std::int64_t epoch)> list_;
  std::mutex mutex_;
  std::map<std::int64_t, std::shared_ptr<const IndexList>> lists_;
};

/// @throws DataError  size < 1
std::int64_t require_samples(std::int64_t size) {
  if (size < 1) throw DataError("the training data have no samples");
  return size;
}

}  // namespace

std::vector<std::int64_t> TorchGenerator::permutation(std::int64_t size) {
  if (size < 0 || size >= kLargest) {
    throw std::invalid_argument("TorchGenerator: no permutation of " + std::to_string(size));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = 0; i + 1 < order.size(); ++i) std::swap(order[i], order[i + engine_() % (order.size() - i)]);
  return order;
}

std::vector<double> TorchGenerator::uniform(std::int64_t count) {
  std::vector<double> numbers(static_cast<std::size_t>(count));
  for (double& number : numbers) number = static_cast<double>(engine_() & 0xFFFFFFU) * 0x1p-24;
  return numbers;
}

OrderPtr order_of(std::int64_t length,
                  std::function<IndexList(std::int64_t epoch, std::int64_t begin, std::int64_t count)> indices) {
  return std::make_shared<FunctionOrder>(length, std::move(indices));
}

OrderPtr order_of_lists(std::int64_t length, std::function<IndexList(std::int64_t epoch)> list) {
  const auto lists = std::make_shared<RecentLists>(std::move(list));
  return order_of(length, [lists](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    const std::shared_ptr<const IndexList> whole = lists->of_epoch(epoch);
    return IndexList(whole->begin() + begin, whole->begin() + begin + count);
  });
}

OrderPtr sequential_order(std::int64_t size) {
  return order_of(require_samples(size), [](std::int64_t, std::int64_t begin, std::int64_t count) {
    IndexList indices(static_cast<std::size_t>(count));
    std::iota(indices.begin(), indices.end(), begin);
    return indices;
  });
}

OrderPtr shuffled_order(std::int64_t size, std::uint64_t seed) {
  return order_of(require_samples(size), [size, seed](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    const std::uint64_t key = random::bits(seed, random::Stream::order, static_cast<std::uint64_t>(epoch));
    const random::Permutation order(static_cast<std::uint64_t>(size), key);
    IndexList indices(static_cast<std::size_t>(count));
    for (std::int64_t& index : indices) {
      index = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(begin++)));
    }
    return indices;
  });
}

OrderPtr torch_order(std::int64_t size, std::uint64_t seed) {
  return order_of_lists(require_samples(size), [size, seed](std::int64_t epoch) {
    return TorchGenerator(seed + static_cast<std::uint64_t>(epoch)).permutation(size);
  });
}

OrderPtr repeated_order(OrderPtr order, std::int64_t repeats) {
  if (repeats < 1) throw std::invalid_argument("repeated_order: repeats must be at least 1");
  const std::int64_t length = order->length();
  return order_of(length, [=](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    IndexList indices;
    if (count == 0) return indices;
    const std::int64_t first = begin / repeats;
    const std::int64_t last = (begin + count - 1) / repeats;
    const IndexList distinct = order->indices(epoch, first, last - first + 1);
    for (std::int64_t p = begin; p < begin + count; ++p) {
      indices.push_back(distinct[static_cast<std::size_t>(p / repeats - first)]);
    }
    return indices;
  });
}

OrderPtr subset_order(OrderPtr order, IndexList chosen) {
  const std::int64_t length = order->length();
  if (length != std::ssize(chosen)) {
    throw std::invalid_argument("subset_order: an order of " + std::to_string(length) + " for " +
                                std::to_string(chosen.size()) + " chosen samples");
  }
  return order_of(length, [order = std::move(order), chosen = std::move(chosen)](std::int64_t epoch, std::int64_t begin,
                                                                                 std::int64_t count) {
    IndexList indices = order->indices(epoch, begin, count);
    for (std::int64_t& index : indices) index = chosen.at(static_cast<std::size_t>(index));
    return indices;
  });
}

OrderPtr block_order(std::int64_t size, OrderPtr inside, const BlockOptions& options) {
  const std::int64_t batch = options.global_batch_size;
  if (options.blocks < 1 || batch < 1 || batch % options.blocks != 0) {
    throw ConfigError("train.global_batch_size = " + std::to_string(batch) +
                      " is not a multiple of data.blocks = " + std::to_string(options.blocks));
  }
  const std::int64_t block = require_samples(size) / options.blocks;
  const std::int64_t part = batch / options.blocks;
  if (block < part) {
    throw ConfigError("a block has " + std::to_string(block) + " samples, but each global batch needs " +
                      std::to_string(part) + " of it; lower train.global_batch_size");
  }
  if (inside->length() != block) throw std::invalid_argument("block_order: the order is not one of a block");
  return order_of(block / part * batch, [=](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    IndexList indices;
    for (std::int64_t position = begin; position < begin + count; ++position) {
      const std::int64_t within = position % batch;
      const std::int64_t place = position / batch * part + within % part;
      indices.push_back(within / part * block + inside->indices(epoch, place, 1).front());
    }
    return indices;
  });
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
