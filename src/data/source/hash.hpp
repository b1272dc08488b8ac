// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <initializer_list>
#include <mutex>
#include <span>

namespace lockstep::data {

/// A 64-bit hash of `bytes`, the same on every machine; no defence against bytes made to collide.
std::uint64_t hash_of(std::span<const std::uint8_t> bytes);

/// A 64-bit hash of numbers, in their order.
std::uint64_t hash_of(std::initializer_list<std::uint64_t> numbers);

/// The same for a few evenly spaced pieces of `bytes`, the first and the last among them, and their number: quick
/// even for a file that is larger than memory.
std::uint64_t sampled_hash_of(std::span<const std::uint8_t> bytes);

/// A digest that is computed when it is needed first. Thread-safe.
class LazyDigest {
 public:
  template <class Compute>
  std::uint64_t get(const Compute& compute) const {
    std::call_once(once_, [&] { value_ = compute(); });
    return value_;
  }

 private:
  mutable std::once_flag once_;
  mutable std::uint64_t value_ = 0;
};

}  // namespace lockstep::data
