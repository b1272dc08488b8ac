// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/chunk_filters.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <string>
#include <utility>

#include "arrays/bitshuffle.hpp"
#include "arrays/decompressors.hpp"
#include "arrays/lzf.hpp"

namespace lockstep::arrays {

namespace {

constexpr std::size_t kChecksumBytes = 4;
constexpr std::size_t kMaxDeflated = 1040;  // deflate makes at most 1032 bytes of one

bool is_own(const SetFilter& filter) {
  return filter.number == kLzf || filter.number == kZstd || filter.number == kBitshuffle;
}

/// Whether the size of the data changes.
bool compresses(const SetFilter& filter) {
  if (filter.number != kBitshuffle) return filter.number == H5Z_FILTER_DEFLATE || is_own(filter);
  const auto options = bitshuffle_options(filter.values);
  return options && options->compression != BlockCompression::none;
}

const char* name_of_filter(const SetFilter& filter) {
  return filter.number == H5Z_FILTER_DEFLATE ? "deflate"
         : filter.number == kLzf             ? "lzf"
         : filter.number == kZstd            ? "zstd"
                                             : "bitshuffle";
}

[[noreturn]] void throw_damaged(const SetFilter& filter) {
  throw DataError(std::string("its data are damaged (filter ") + name_of_filter(filter) + ")");
}

/// @param bytes  size of the decoded data
std::vector<std::byte> decoded(const SetFilter& filter, std::span<const std::byte> from, std::size_t bytes) {
  const bool is_deflate = filter.number == H5Z_FILTER_DEFLATE;
  const bool has_size = is_deflate ? bytes / kMaxDeflated <= from.size() : decoded_size(filter, from) == bytes;
  if (!has_size) throw_damaged(filter);
  std::vector<std::byte> out(bytes);
  if (!(is_deflate ? inflate(from, out) : decode_filter(filter, from, out))) throw_damaged(filter);
  return out;
}

/// All first bytes of elements stand before all second ones, and so on. Bytes after the last whole element stay.
template <std::size_t kBytes>
void join_bytes(const std::byte* from, std::byte* target, std::size_t elements) {
  for (std::size_t i = 0; i < elements; ++i) {
    for (std::size_t byte = 0; byte < kBytes; ++byte) target[kBytes * i + byte] = from[elements * byte + i];
  }
}

std::vector<std::byte> unshuffle(std::vector<std::byte> from, const SetFilter& filter) {
  const std::size_t bytes = filter.values.empty() ? 0 : filter.values[0];
  if (bytes <= 1 || from.size() < bytes) return from;
  const std::size_t elements = from.size() / bytes;
  std::vector<std::byte> out(from.size());
  std::copy(from.begin() + static_cast<std::ptrdiff_t>(elements * bytes), from.end(),
            out.begin() + static_cast<std::ptrdiff_t>(elements * bytes));
  switch (bytes) {
    case 2:
      join_bytes<2>(from.data(), out.data(), elements);
      break;
    case 4:
      join_bytes<4>(from.data(), out.data(), elements);
      break;
    case 8:
      join_bytes<8>(from.data(), out.data(), elements);
      break;
    default:
      for (std::size_t i = 0; i < elements * bytes; ++i) out[i] = from[i % bytes * elements + i / bytes];
  }
  return out;
}

/// Fletcher's checksum of big-endian words of 16 bits; a last byte alone is the upper half of a word.
std::uint32_t fletcher32(std::span<const std::byte> bytes) {
  constexpr std::size_t kBlock = 720;  // bytes after which the sums are folded, long before they overflow
  std::uint32_t first = 0, second = 0;
  const auto fold = [](std::uint32_t sum) { return (sum & 0xFFFF) + (sum >> 16); };
  for (std::size_t begin = 0; begin < bytes.size(); begin += kBlock) {
    const auto block = bytes.subspan(begin, std::min(kBlock, bytes.size() - begin));
    for (std::size_t i = 0; i < block.size(); i += 2) {
      first += std::to_integer<std::uint32_t>(block[i]) << 8;
      if (i + 1 < block.size()) first += std::to_integer<std::uint32_t>(block[i + 1]);
      second += first;
    }
    first = fold(first);
    second = fold(second);
  }
  return fold(second) << 16 | fold(first);
}

/// Takes the checksum off the end. Early versions of HDF5 wrote both of its halves with their bytes swapped.
void check_fletcher32(std::vector<std::byte>& chunk) {
  const std::size_t size = chunk.size() < kChecksumBytes ? 0 : chunk.size() - kChecksumBytes;
  std::uint32_t stored = 0;
  for (std::size_t i = chunk.size(); i-- > size;) stored = stored << 8 | std::to_integer<std::uint32_t>(chunk[i]);
  const std::uint32_t sum = fletcher32(std::span(chunk).first(size));
  const std::uint32_t swapped = (sum & 0x00FF00FF) << 8 | (sum >> 8 & 0x00FF00FF);
  const bool is_right = chunk.size() >= kChecksumBytes && (stored == sum || stored == swapped);
  if (!is_right) throw DataError("it is damaged: its bytes differ from their checksum (fletcher32)");
  chunk.resize(size);
}

}  // namespace

bool can_undo(const std::vector<SetFilter>& filters) {
  const bool are_known = std::ranges::all_of(filters, [](const SetFilter& filter) {
    const bool is_built_in = filter.number == H5Z_FILTER_DEFLATE || filter.number == H5Z_FILTER_SHUFFLE ||
                             filter.number == H5Z_FILTER_FLETCHER32;
    return is_built_in || (is_own(filter) && can_decode(filter));
  });
  return are_known && filters.size() <= 32 && std::ranges::count_if(filters, compresses) <= 1;
}

std::vector<std::byte> undo_filters(const std::vector<SetFilter>& filters, std::uint32_t skipped,
                                    std::vector<std::byte> stored, std::size_t chunk_bytes) {
  const auto is_applied = [&](std::size_t i) { return (skipped >> i & 1) == 0; };
  std::vector<std::size_t> sizes;  // bytes that each filter was given
  std::size_t size = chunk_bytes;
  for (std::size_t i = 0; i < filters.size(); ++i) {
    sizes.push_back(size);
    if (filters[i].number == H5Z_FILTER_FLETCHER32 && is_applied(i)) size += kChecksumBytes;
  }
  std::vector<std::byte> chunk = std::move(stored);
  for (std::size_t i = filters.size(); i-- > 0;) {
    if (!is_applied(i)) continue;
    const SetFilter& filter = filters[i];
    if (filter.number == H5Z_FILTER_FLETCHER32) {
      check_fletcher32(chunk);
    } else if (filter.number == H5Z_FILTER_SHUFFLE) {
      chunk = unshuffle(std::move(chunk), filter);
    } else {
      chunk = decoded(filter, chunk, sizes[i]);
    }
  }
  if (chunk.size() == chunk_bytes) return chunk;
  throw DataError("it is damaged: it has " + std::to_string(chunk.size()) + " bytes instead of " +
                  std::to_string(chunk_bytes));
}

bool can_decode(const SetFilter& filter) {
  if (filter.number == kLzf) return true;
  if (filter.number == kZstd) return has_lz4_and_zstd();
  const auto options = bitshuffle_options(filter.values);
  return options && (options->compression == BlockCompression::none || has_lz4_and_zstd());
}

std::optional<std::size_t> decoded_size(const SetFilter& filter, std::span<const std::byte> from) {
  if (filter.number == kLzf) return decoded_lzf_size(from);
  if (filter.number == kZstd) return decoded_zstd_size(from);
  const auto options = bitshuffle_options(filter.values);
  return options ? decoded_bitshuffle_size(*options, from) : std::nullopt;
}

bool decode_filter(const SetFilter& filter, std::span<const std::byte> from, std::span<std::byte> out) {
  if (filter.number == kLzf) return decode_lzf(from, out);
  if (filter.number == kZstd) return decode_zstd(from, out);
  const auto options = bitshuffle_options(filter.values);
  return options && undo_bitshuffle(*options, from, out);
}

}  // namespace lockstep::arrays
