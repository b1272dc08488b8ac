// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace lockstep::data {

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
