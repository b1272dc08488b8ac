// SPDX-License-Identifier: BSD-3-Clause
#include "data/source/hash.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep::data {

namespace {

// The finalizer of splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

std::uint64_t join(std::uint64_t hash, std::uint64_t number) {
  return mix(hash + 0x9E3779B97F4A7C15U) ^ mix(number + hash);
}

}  // namespace

std::uint64_t hash_of(std::span<const std::uint8_t> bytes) {
  std::uint64_t hash = bytes.size();
  for (std::size_t begin = 0; begin < bytes.size(); begin += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + begin, std::min(sizeof word, bytes.size() - begin));
    hash = join(hash, word);
  }
  return mix(hash);
}

std::uint64_t hash_of(std::initializer_list<std::uint64_t> numbers) {
  std::uint64_t hash = numbers.size();
  for (const std::uint64_t number : numbers) hash = join(hash, number);
  return mix(hash);
}

std::uint64_t sampled_hash_of(std::span<const std::uint8_t> bytes) {
  constexpr std::size_t kPieces = 64;
  constexpr std::size_t kPieceBytes = 4096;
  if (bytes.size() <= kPieces * kPieceBytes) return hash_of(bytes);
  std::uint64_t hash = bytes.size();
  const std::size_t last = bytes.size() - kPieceBytes;
  for (std::size_t piece = 0; piece < kPieces; ++piece) {
    const std::size_t begin = last / (kPieces - 1) * piece;
    hash = join(hash, hash_of(bytes.subspan(piece + 1 == kPieces ? last : begin, kPieceBytes)));
  }
  return mix(hash);
}

}  // namespace lockstep::data
