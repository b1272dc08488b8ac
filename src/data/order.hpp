// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/sampler.hpp>

#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace lockstep::data {

using IndexList = std::vector<std::int64_t>;

/// An order of this length, from the function Order::indices.
OrderPtr order_of(std::int64_t length,
                  std::function<IndexList(std::int64_t epoch, std::int64_t begin, std::int64_t count)> indices);

/// An order whose positions depend on one another: the whole epoch is a pure function of its number, with `length`
/// entries. The lists of the two epochs last requested are remembered, which changes nothing but speed.
OrderPtr order_of_lists(std::int64_t length, std::function<IndexList(std::int64_t epoch)> list);

/// The numbers of PyTorch's CPU generator, whatever LibTorch this is: for orders that equal those of a PyTorch program.
/// Lockstep's own orders have no such state.
class TorchGenerator {
 public:
  /// @param seed  as of torch.Generator().manual_seed; its low 32 bits count
  explicit TorchGenerator(std::uint64_t seed) : engine_(static_cast<std::uint32_t>(seed)) {}

  std::vector<std::int64_t> permutation(std::int64_t size);  ///< torch.randperm(size), size < 2^32 / 20
  std::vector<double> uniform(std::int64_t count);           ///< torch.rand(count): float32 numbers in [0, 1)

 private:
  std::mt19937 engine_;
};

}  // namespace lockstep::data
