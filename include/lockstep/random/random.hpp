// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::random {

/// What a random number is for. A number is a pure function of (seed, stream, a, b, i), so nothing that was drawn
/// before, no thread and no number of ranks can change it, and there is no generator state to save. The values are
/// part of the checkpoint contract: never renumber.
enum class Stream : std::uint32_t {
  initialization = 1,  ///< of model parameters
  order = 2,           ///< of the samples of an epoch
  digits = 3,          ///< the drawn digits
  forward = 4,         ///< dropout and whatever else LibTorch draws in a forward pass
  compression = 5,     ///< where the compression of gradients begins
  user = 1000,         ///< this and above are free for a user's program
};

/// Philox4x32-10: four independent 32-bit words for one counter under one key.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// 64 bits for (seed, stream, a, b, i).
std::uint64_t bits(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b = 0, std::uint64_t i = 0);

/// A short sequence of numbers for one key: cheap to make, nothing to save. Number i is bits(seed, stream, a, b, i).
class Sequence {
 public:
  Sequence(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b = 0);

  std::uint64_t next_bits();
  double uniform();                          ///< in [0, 1), 53 random bits
  double uniform(double low, double high);   ///< in [low, high)
  double normal();                           ///< mean 0, variance 1 (Box and Muller)
  std::uint64_t below(std::uint64_t bound);  ///< in [0, bound), unbiased; bound >= 1
  std::uint64_t at(std::uint64_t i);         ///< number i, without moving on

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> upper_;    // half of the counter; the other half counts blocks of two numbers
  std::array<std::uint32_t, 4> words_{};  // of block_
  std::uint64_t block_ = 0;
  bool has_words_ = false;
  std::uint64_t i_ = 0;
};

/// A keyed bijection of [0, size): the order of samples, evaluated at any position without storing it.
///
/// A balanced Feistel network over the next even power of two, with cycle walking for positions beyond `size`.
class Permutation {
 public:
  /// @param size   in [1, 2^62]
  /// @param key    for example bits(seed, Stream::order, epoch)
  Permutation(std::uint64_t size, std::uint64_t key);
  std::uint64_t size() const noexcept { return size_; }
  std::uint64_t operator()(std::uint64_t position) const;  ///< position < size

 private:
  std::uint64_t size_;
  std::uint64_t key_;
  unsigned half_bits_;
};

}  // namespace lockstep::random
