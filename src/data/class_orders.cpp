// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/epoch_list.hpp"

namespace lockstep::data {

namespace {

std::vector<IndexList> members_of(std::span<const std::int64_t> labels) {
  std::vector<IndexList> members;
  for (auto& [label, samples] : by_label(labels)) members.push_back(samples);
  return members;
}

std::uint64_t draw(DrawKind what, std::uint64_t which) { return static_cast<std::uint64_t>(what) + which; }

class Identity : public EpochList {
 public:
  Identity(std::span<const std::int64_t> labels, const IdentityOptions& options, std::uint64_t seed)
      : members_(members_of(labels)), options_(options), seed_(seed) {
    const std::int64_t batch = options.global_batch_size;
    if (options.instances < 1 || batch < 1 || batch % options.instances != 0) {
      throw ConfigError("data.instances = " + std::to_string(options.instances) +
                        " does not divide train.global_batch_size = " + std::to_string(batch));
    }
    classes_per_batch_ = batch / options.instances;
    if (static_cast<std::int64_t>(members_.size()) < classes_per_batch_) {
      throw ConfigError("the training data have " + std::to_string(members_.size()) + " classes, but a batch of " +
                        std::to_string(batch) + " with data.instances = " + std::to_string(options.instances) +
                        " needs " + std::to_string(classes_per_batch_));
    }
    std::int64_t groups = 0;
    for (const IndexList& samples : members_) {
      groups += std::max<std::int64_t>(1, static_cast<std::int64_t>(samples.size()) / options.instances);
    }
    length_ = groups / classes_per_batch_ * batch;
  }
  std::int64_t length() const override { return length_; }

 private:
  IndexList list(std::int64_t epoch) const override {
    random::Sequence numbers(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch),
                             draw(DrawKind::classes, 0));
    IndexList list;
    while (static_cast<std::int64_t>(list.size()) < length_) pass(numbers, list);
    return list;
  }

  /// Goes through the classes once: until too few are left for a batch, or the list is full.
  void pass(random::Sequence& numbers, IndexList& list) const {
    std::vector<IndexList> left(members_.size());  // remaining samples of each class; taken from the end
    std::vector<std::size_t> available(members_.size());
    for (std::size_t i = 0; i < available.size(); ++i) {
      available[i] = i;
      left[i] = shuffled(members_[i], numbers);
    }
    const auto wanted = static_cast<std::size_t>(classes_per_batch_);
    while (available.size() >= wanted && static_cast<std::int64_t>(list.size()) < length_) {
      for (std::size_t i = 0; i < wanted; ++i) {
        std::swap(available[i], available[i + numbers.below(available.size() - i)]);
        take(left[available[i]], list);
      }
      std::erase_if(available, [&](std::size_t i) { return static_cast<std::int64_t>(left[i].size()) < kept(); });
    }
  }

  std::int64_t kept() const { return options_.instances; }

  /// The indices in a random order; filled up with repetitions to the number of instances.
  IndexList shuffled(IndexList samples, random::Sequence& numbers) const {
    const std::size_t distinct = samples.size();
    while (static_cast<std::int64_t>(samples.size()) < kept()) samples.push_back(samples[numbers.below(distinct)]);
    for (std::size_t i = samples.size(); i > 1; --i) std::swap(samples[i - 1], samples[numbers.below(i)]);
    return samples;
  }

  void take(IndexList& samples, IndexList& list) const {
    list.insert(list.end(), samples.end() - kept(), samples.end());
    samples.resize(samples.size() - static_cast<std::size_t>(kept()));
  }

  std::vector<IndexList> members_;
  IdentityOptions options_;
  std::uint64_t seed_;
  std::int64_t classes_per_batch_ = 0;
  std::int64_t length_ = 0;
};

class ClassBalanced : public Order {
 public:
  ClassBalanced(std::span<const std::int64_t> labels, std::uint64_t seed)
      : members_(members_of(labels)), seed_(seed), length_(static_cast<std::int64_t>(labels.size())) {
    if (members_.empty()) throw DataError("no sample of the training data have a class");
    const auto classes = static_cast<std::int64_t>(members_.size());
    rounds_per_epoch_ = (length_ + classes - 1) / classes;
  }
  std::int64_t length() const override { return length_; }
  IndexList indices(std::int64_t epoch, std::int64_t begin, std::int64_t count) const override {
    IndexList indices;
    for (std::int64_t position = begin; position < begin + count; ++position) indices.push_back(at(epoch, position));
    return indices;
  }

 private:
  std::int64_t at(std::int64_t epoch, std::int64_t position) const {
    const auto classes = static_cast<std::int64_t>(members_.size());
    // Rounds are counted through all epochs, and each shows every class once: the visits of a class so far.
    const auto round = static_cast<std::uint64_t>(epoch * rounds_per_epoch_ + position / classes);
    const std::uint64_t which = permuted(members_.size(), position % classes, round, draw(DrawKind::classes, 0));
    const IndexList& members = members_[which];
    const std::uint64_t pass = round / members.size();
    return members[permuted(members.size(), static_cast<std::int64_t>(round % members.size()), pass,
                            draw(DrawKind::members, which))];
  }

  std::uint64_t permuted(std::uint64_t size, std::int64_t position, std::uint64_t a, std::uint64_t b) const {
    const random::Permutation order(size, random::bits(seed_, random::Stream::order, a, b));
    return order(static_cast<std::uint64_t>(position));
  }

  std::vector<IndexList> members_;
  std::uint64_t seed_;
  std::int64_t length_;
  std::int64_t rounds_per_epoch_ = 0;
};

class Grouped : public EpochList {
 public:
  Grouped(IndexList groups, std::int64_t batch_size, OrderPtr order)
      : groups_(std::move(groups)), batch_size_(batch_size), order_(std::move(order)) {
    if (batch_size < 1) throw std::invalid_argument("grouped_order: batch_size must be at least 1");
    std::map<std::int64_t, std::int64_t> sizes;
    for (const std::int64_t group : groups_) ++sizes[group];
    for (const auto& [group, size] : sizes) {
      if (size < batch_size) {
        throw ConfigError("group " + std::to_string(group) + " has " + std::to_string(size) +
                          " samples, fewer than a batch of " + std::to_string(batch_size) +
                          ": they would never be used; lower train.global_batch_size");
      }
      length_ += size / batch_size * batch_size;
    }
  }
  std::int64_t length() const override { return length_; }

 private:
  IndexList list(std::int64_t epoch) const override {
    std::map<std::int64_t, IndexList> waiting;
    IndexList list;
    for (const std::int64_t index : order_->indices(epoch, 0, order_->length())) {
      IndexList& batch = waiting[groups_[static_cast<std::size_t>(index)]];
      batch.push_back(index);
      if (static_cast<std::int64_t>(batch.size()) < batch_size_) continue;
      list.insert(list.end(), batch.begin(), batch.end());
      batch.clear();
    }
    return list;
  }

  IndexList groups_;
  std::int64_t batch_size_;
  OrderPtr order_;
  std::int64_t length_ = 0;
};

}  // namespace

OrderPtr identity_order(std::span<const std::int64_t> labels, const IdentityOptions& options, std::uint64_t seed) {
  return std::make_shared<Identity>(labels, options, seed);
}

OrderPtr class_balanced_order(std::span<const std::int64_t> labels, std::uint64_t seed) {
  return std::make_shared<ClassBalanced>(labels, seed);
}

OrderPtr grouped_order(IndexList groups, std::int64_t batch_size, std::uint64_t seed, bool shuffle) {
  const auto size = static_cast<std::int64_t>(groups.size());
  return std::make_shared<Grouped>(std::move(groups), batch_size,
                                   shuffle ? shuffled_order(size, seed) : sequential_order(size));
}

IndexList aspect_groups(std::span<const double> ratios) {
  IndexList groups;
  for (const double ratio : ratios) groups.push_back(ratio > 1 ? 0 : 1);
  return groups;
}

}  // namespace lockstep::data
