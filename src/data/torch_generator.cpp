// SPDX-License-Identifier: BSD-3-Clause
#include "data/torch_generator.hpp"

#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep::data {

namespace {

constexpr std::int64_t kLargest = 0xFFFFFFFF / 20;  // PyTorch draws 64 bits at a time for larger sizes

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

}  // namespace lockstep::data
