// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/bitshuffle.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays/decompressors.hpp"

namespace lockstep::arrays {

namespace {

constexpr std::size_t kGroup = 8;          // elements of which the bits fill whole bytes
constexpr std::size_t kBlockBytes = 8192;  // about the size of a block that bitshuffle chooses
constexpr std::size_t kMinBlock = 128;     // elements
constexpr std::size_t kMaxElement = 1 << 16;
constexpr std::size_t kHeaderBytes = 12;
constexpr std::size_t kSizeBytes = 4;  // size before each compressed block

std::uint64_t big_endian(std::span<const std::byte> bytes) {
  std::uint64_t number = 0;
  for (const std::byte byte : bytes) number = number << 8 | std::to_integer<std::uint64_t>(byte);
  return number;
}

/// Transposes a matrix of 8 x 8 bits: bit i of byte k becomes bit k of byte i.
constexpr std::uint64_t transposed(std::uint64_t bits) {
  const auto swap = [&bits](unsigned distance, std::uint64_t mask) {
    const std::uint64_t other = (bits ^ (bits >> distance)) & mask;
    bits ^= other ^ (other << distance);
  };
  swap(7, 0x00AA00AA00AA00AA);
  swap(14, 0x0000CCCC0000CCCC);
  swap(28, 0x00000000F0F0F0F0);
  return bits;
}

/// The part of the input that no block has used yet.
class BlockInput {
 public:
  explicit BlockInput(std::span<const std::byte> from) : rest_(from) {}

  /// @return  none if fewer bytes are left
  std::optional<std::span<const std::byte>> take(std::uint64_t bytes) {
    if (bytes > rest_.size()) return std::nullopt;
    const auto taken = rest_.first(static_cast<std::size_t>(bytes));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  bool is_empty() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

/// Decodes one block into `out`.
bool decode_block(BlockInput& input, const BitshuffleOptions& options, std::span<std::byte> out,
                  std::vector<std::byte>& bits) {
  if (options.compression == BlockCompression::none) {
    const auto stored = input.take(out.size());
    if (stored) join_bits(*stored, out, options.element_bytes);
    return stored.has_value();
  }
  const auto size = input.take(kSizeBytes);
  const auto stored = size ? input.take(big_endian(*size)) : std::nullopt;
  if (!stored) return false;
  bits.resize(out.size());
  const bool is_decoded =
      options.compression == BlockCompression::lz4 ? decode_lz4(*stored, bits) : decode_zstd(*stored, bits);
  if (is_decoded) join_bits(bits, out, options.element_bytes);
  return is_decoded;
}

/// The elements of a block that bitshuffle chooses.
std::size_t default_block(std::size_t element_bytes) {
  return std::max(kBlockBytes / element_bytes / kGroup * kGroup, kMinBlock);
}

}  // namespace

std::optional<BitshuffleOptions> bitshuffle_options(std::span<const unsigned> values) {
  if (values.size() < 3 || values[2] == 0 || values[2] > kMaxElement) return std::nullopt;
  BitshuffleOptions options{.element_bytes = values[2], .block = values.size() > 3 ? values[3] : 0};
  const unsigned compression = values.size() > 4 ? values[4] : 0;
  if (compression != 0 && compression != 2 && compression != 3) return std::nullopt;
  options.compression = static_cast<BlockCompression>(compression);
  return options;
}

std::optional<std::size_t> decoded_bitshuffle_size(const BitshuffleOptions& options, std::span<const std::byte> from) {
  constexpr std::uint64_t kMaxRatio = std::uint64_t{1} << 15;  // that of zstd
  if (options.compression == BlockCompression::none) return from.size();
  if (from.size() < kHeaderBytes) return std::nullopt;
  const std::uint64_t size = big_endian(from.first(8));
  if (size / kMaxRatio > from.size()) return std::nullopt;
  return static_cast<std::size_t>(size);
}

bool undo_bitshuffle(const BitshuffleOptions& given, std::span<const std::byte> from, std::span<std::byte> out) {
  if (decoded_bitshuffle_size(given, from) != out.size()) return false;
  BitshuffleOptions options = given;
  BlockInput input(from);
  if (options.compression != BlockCompression::none) {
    const std::uint64_t block_bytes = big_endian(input.take(kHeaderBytes)->subspan(8));
    if (block_bytes % options.element_bytes != 0) return false;
    options.block = static_cast<std::size_t>(block_bytes / options.element_bytes);
  }
  if (options.block == 0) options.block = default_block(options.element_bytes);
  if (options.block % kGroup != 0) return false;

  std::vector<std::byte> bits;
  std::size_t elements = out.size() / options.element_bytes / kGroup * kGroup;  // those in blocks
  while (elements > 0) {
    const std::size_t count = std::min(elements, options.block);
    const auto block = out.first(count * options.element_bytes);
    if (!decode_block(input, options, block, bits)) return false;
    out = out.subspan(block.size());
    elements -= count;
  }
  const auto last = input.take(out.size());  // up to seven elements are stored as they are
  if (!last || !input.is_empty()) return false;
  std::ranges::copy(*last, out.begin());
  return true;
}

void join_bits(std::span<const std::byte> from, std::span<std::byte> out, std::size_t bytes) {
  const std::size_t row = from.size() / bytes / kGroup;  // bytes with one bit of all elements
  for (std::size_t byte = 0; byte < bytes; ++byte) {
    const std::byte* const rows = from.data() + byte * kGroup * row;
    std::byte* target = out.data() + byte;
    for (std::size_t group = 0; group < row; ++group) {
      std::uint64_t bits = 0;
      for (std::size_t bit = 0; bit < kGroup; ++bit) {
        bits |= std::to_integer<std::uint64_t>(rows[bit * row + group]) << (kGroup * bit);
      }
      bits = transposed(bits);
      for (std::size_t element = 0; element < kGroup; ++element, target += bytes) {
        *target = static_cast<std::byte>(bits >> (kGroup * element));
      }
    }
  }
}

}  // namespace lockstep::arrays
