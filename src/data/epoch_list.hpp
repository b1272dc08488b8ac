// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/sampler.hpp>

#include <functional>
#include <map>

namespace lockstep::data {

using IndexList = std::vector<std::int64_t>;

/// An order of this length, from the function Order::indices.
OrderPtr order_of(std::int64_t length,
                  std::function<IndexList(std::int64_t epoch, std::int64_t begin, std::int64_t count)> indices);

/// An order whose positions depend on one another: the whole epoch is a pure function of its number, with `length`
/// entries. The lists of the two epochs last requested are remembered, which changes nothing but speed.
OrderPtr order_of_lists(std::int64_t length, std::function<IndexList(std::int64_t epoch)> list);

/// The purposes of random numbers of an epoch, other than the order: the last argument of random::bits. In its low bits
/// it may hold a class. The values are part of the checkpoint contract.
enum class DrawKind : std::uint64_t {
  repeats = std::uint64_t{1} << 56,
  classes = std::uint64_t{2} << 56,
  members = std::uint64_t{3} << 56,
};

/// The samples of each class, by class; negative labels are left out.
std::map<std::int64_t, IndexList> by_label(std::span<const std::int64_t> labels);

/// @throws DataError  size < 1
std::int64_t require_samples(std::int64_t size);

}  // namespace lockstep::data
