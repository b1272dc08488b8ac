// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/text/text.hpp"
#include "data/order.hpp"

namespace lockstep::data {

namespace {

/// The purposes of random numbers of an epoch, other than the order: the last argument of random::bits. In its low bits
/// it may hold a class. The values are part of the checkpoint contract.
enum class DrawKind : std::uint64_t {
  repeats = std::uint64_t{1} << 56,
  classes = std::uint64_t{2} << 56,
  members = std::uint64_t{3} << 56,
};

/// The samples of each class, by class; negative labels are left out.
std::vector<IndexList> members_of(std::span<const std::int64_t> labels) {
  std::map<std::int64_t, IndexList> classes;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] >= 0) classes[labels[i]].push_back(static_cast<std::int64_t>(i));
  }
  std::vector<IndexList> members;
  for (auto& [label, samples] : classes) members.push_back(std::move(samples));
  return members;
}

std::uint64_t draw(DrawKind what, std::uint64_t which) { return static_cast<std::uint64_t>(what) + which; }

class Identity {
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
  std::int64_t length() const { return length_; }
  IndexList list(std::int64_t epoch) const {
    random::Sequence numbers(seed_, random::Stream::order, static_cast<std::uint64_t>(epoch),
                             draw(DrawKind::classes, 0));
    IndexList list;
    while (static_cast<std::int64_t>(list.size()) < length_) pass(numbers, list);
    return list;
  }

 private:
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

/// An index of a permutation that depends on these numbers.
std::uint64_t permuted(std::uint64_t size, std::int64_t position, std::uint64_t seed, std::uint64_t a,
                       std::uint64_t b) {
  const random::Permutation order(size, random::bits(seed, random::Stream::order, a, b));
  return order(static_cast<std::uint64_t>(position));
}

/// The sum of the factors, rounded.
std::int64_t length_of(const std::vector<double>& factors) {
  double sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (!std::isfinite(factors[i]) || factors[i] < 0) {
      throw ConfigError("sample " + std::to_string(i) + " has the repeat factor " + number_text(factors[i]) +
                        "; it must be at least 0");
    }
    sum += factors[i];
  }
  const std::int64_t length = std::llround(sum);
  if (length < 1) throw ConfigError("the repeat factors leave no sample in an epoch");
  return length;
}

IndexList epoch_of(const std::vector<double>& factors, std::int64_t length, std::uint64_t seed, std::int64_t epoch) {
  const auto a = static_cast<std::uint64_t>(epoch);
  random::Sequence draws(seed, random::Stream::order, a, static_cast<std::uint64_t>(DrawKind::repeats));
  std::vector<double> numbers(factors.size());
  for (double& number : numbers) number = draws.uniform();
  IndexList copies;
  const IndexList counts = repeated(factors, numbers);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    copies.insert(copies.end(), static_cast<std::size_t>(counts[i]), static_cast<std::int64_t>(i));
  }
  // Stands in when no fraction was drawn at all.
  if (copies.empty()) copies.push_back(std::max_element(factors.begin(), factors.end()) - factors.begin());
  const random::Permutation order(copies.size(), random::bits(seed, random::Stream::order, a));
  IndexList list(static_cast<std::size_t>(length));
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = copies[order(i % copies.size())];
  return list;
}

}  // namespace

OrderPtr identity_order(std::span<const std::int64_t> labels, const IdentityOptions& options, std::uint64_t seed) {
  const auto identity = std::make_shared<const Identity>(labels, options, seed);
  return order_of_lists(identity->length(), [identity](std::int64_t epoch) { return identity->list(epoch); });
}

OrderPtr class_balanced_order(std::span<const std::int64_t> labels, std::uint64_t seed) {
  const auto length = static_cast<std::int64_t>(labels.size());
  const std::vector<IndexList> members = members_of(labels);
  if (members.empty()) throw DataError("no sample of the training data has a class");
  const std::int64_t classes = std::ssize(members);
  const std::int64_t rounds_per_epoch = (length + classes - 1) / classes;
  return order_of(length, [=](std::int64_t epoch, std::int64_t begin, std::int64_t count) {
    IndexList indices;
    for (std::int64_t position = begin; position < begin + count; ++position) {
      // Rounds are counted through all epochs, and each shows every class once: the visits of a class so far.
      const auto round = static_cast<std::uint64_t>(epoch * rounds_per_epoch + position / classes);
      const std::uint64_t which = permuted(members.size(), position % classes, seed, round, draw(DrawKind::classes, 0));
      const IndexList& own = members[which];
      const auto visit = static_cast<std::int64_t>(round % own.size());
      indices.push_back(own[permuted(own.size(), visit, seed, round / own.size(), draw(DrawKind::members, which))]);
    }
    return indices;
  });
}

OrderPtr grouped_order(IndexList groups, std::int64_t batch_size, std::uint64_t seed, bool shuffle) {
  const OrderPtr order = shuffle ? shuffled_order(std::ssize(groups), seed) : sequential_order(std::ssize(groups));
  if (batch_size < 1) throw std::invalid_argument("grouped_order: batch_size must be at least 1");
  std::map<std::int64_t, std::int64_t> sizes;
  for (const std::int64_t group : groups) ++sizes[group];
  std::int64_t length = 0;
  for (const auto& [group, size] : sizes) {
    if (size < batch_size) {
      throw ConfigError("group " + std::to_string(group) + " has " + std::to_string(size) +
                        " samples, fewer than a batch of " + std::to_string(batch_size) +
                        ": they would never be used; lower train.global_batch_size");
    }
    length += size / batch_size * batch_size;
  }
  return order_of_lists(length, [groups = std::move(groups), batch_size, order](std::int64_t epoch) {
    std::map<std::int64_t, IndexList> waiting;
    IndexList list;
    for (const std::int64_t index : order->indices(epoch, 0, order->length())) {
      IndexList& batch = waiting[groups[static_cast<std::size_t>(index)]];
      batch.push_back(index);
      if (std::ssize(batch) < batch_size) continue;
      list.insert(list.end(), batch.begin(), batch.end());
      batch.clear();
    }
    return list;
  });
}

IndexList aspect_groups(std::span<const double> ratios) {
  IndexList groups;
  for (const double ratio : ratios) groups.push_back(ratio > 1 ? 0 : 1);
  return groups;
}

OrderPtr repeat_factor_order(std::vector<double> factors, std::uint64_t seed) {
  const std::int64_t length = length_of(factors);
  return order_of_lists(length, [factors = std::move(factors), length, seed](std::int64_t epoch) {
    return epoch_of(factors, length, seed, epoch);
  });
}

std::vector<double> repeat_factors(const std::vector<IndexList>& categories, double threshold, bool takes_root) {
  if (!(threshold > 0)) throw ConfigError("the threshold of repeat factors must be above 0");
  std::map<std::int64_t, double> samples_with;
  for (const IndexList& sample : categories) {
    for (const std::int64_t category : std::set<std::int64_t>(sample.begin(), sample.end()))
      samples_with[category] += 1;
  }
  std::vector<double> factors;
  for (const IndexList& sample : categories) {
    double factor = 1;
    for (const std::int64_t category : sample) {
      const double wanted = threshold / (samples_with[category] / static_cast<double>(categories.size()));
      factor = std::max(factor, takes_root ? std::sqrt(wanted) : wanted);
    }
    factors.push_back(factor);
  }
  return factors;
}

IndexList repeated(std::span<const double> factors, std::span<const double> draws) {
  if (factors.size() != draws.size()) throw std::invalid_argument("repeated: a draw for each factor is needed");
  IndexList counts;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double whole = std::floor(factors[i]);
    counts.push_back(static_cast<std::int64_t>(whole) + (draws[i] < factors[i] - whole ? 1 : 0));
  }
  return counts;
}

}  // namespace lockstep::data
