// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::random {

/// The purpose of a random number. A number is a pure function of (seed, stream, a, b, i), so it does not depend on
/// other draws, on threads or on the number of ranks, and there is no generator state to save. Checkpoints depend on
/// these values: never renumber them.
enum class Stream : std::uint32_t {
  initialization = 1,  ///< initial values of parameters
  order = 2,           ///< order of the samples of an epoch
  digits = 3,          ///< the images of data source digits
  forward = 4,         ///< dropout and other random numbers of LibTorch in a forward pass
  compression = 5,     ///< initial values of the compression of gradients
  augment = 6,         ///< parameters of the transforms of samples
  mixing = 7,          ///< mixup and cutmix of batches
  rounding = 8,        ///< stochastic rounding of parameters
  buffer_places = 9,   ///< which pushed samples a buffer keeps
  buffer_draws = 10,   ///< which samples of a buffer a step is trained on
  user = 1000,         ///< first value for your own program
};

/// Philox4x32-10: four independent 32-bit words for one counter under one key.
/// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// 64 bits for (seed, stream, a, b, i).
std::uint64_t bits(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b = 0, std::uint64_t i = 0);

/// A short sequence of random numbers for one key, without state to save. Number i is bits(seed, stream, a, b, i).
class Sequence {
 public:
  /// @param first  the number with which the sequence begins
  Sequence(std::uint64_t seed, Stream stream, std::uint64_t a, std::uint64_t b = 0, std::uint64_t first = 0);

  std::uint64_t next_bits();
  double uniform();                          ///< a number in [0, 1), 53 random bits
  double uniform(double low, double high);   ///< a number in [low, high)
  double normal();                           ///< mean 0, variance 1 (Box and Muller)
  std::uint64_t below(std::uint64_t bound);  ///< an integer in [0, bound), unbiased; bound >= 1
  std::uint64_t at(std::uint64_t i);         ///< number i, without changing the position

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> upper_;    // half of the counter; the other half counts blocks of two numbers
  std::array<std::uint32_t, 4> words_{};  // random words of block_
  std::uint64_t block_ = 0;
  bool has_words_ = false;
  std::uint64_t i_ = 0;
};

/// A number with the distribution Beta(alpha, beta). Uses a bounded count of numbers of the sequence.
/// Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
/// @param alpha, beta  > 0
/// @return             in [0, 1]
double beta_variate(Sequence& sequence, double alpha, double beta);

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
