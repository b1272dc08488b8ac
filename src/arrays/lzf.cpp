// SPDX-License-Identifier: BSD-3-Clause
#include "arrays/lzf.hpp"

#include <cstring>

namespace lockstep::arrays {

namespace {

/// One step of the sequence: `length` bytes, which stand in the input, or `distance` bytes back in the output.
struct LzfCopy {
  std::size_t length = 0;
  std::size_t distance = 0;  ///< 0 = from the input
};

/// Takes the description of the next copy from the input; none if the input ends inside of it.
///
/// A first byte below 32 is a length minus one, and that many bytes follow. Otherwise its upper three bits are a length
/// minus two (if all are set, the next byte is added), and its lower five and the next byte a distance minus one.
std::optional<LzfCopy> take_copy(std::span<const std::byte>& from) {
  const auto take = [&from] {
    const auto byte = std::to_integer<std::size_t>(from.front());
    from = from.subspan(1);
    return byte;
  };
  constexpr std::size_t kShortest = 2, kLongForm = 7, kDistanceBits = 5;
  const std::size_t head = take();
  if (head < std::size_t{1} << kDistanceBits) {
    if (from.size() < head + 1) return std::nullopt;
    return LzfCopy{.length = head + 1, .distance = 0};
  }
  std::size_t length = head >> kDistanceBits;
  const std::size_t needed = length == kLongForm ? 2 : 1;
  if (from.size() < needed) return std::nullopt;
  if (length == kLongForm) length += take();
  const std::size_t high = head & ((std::size_t{1} << kDistanceBits) - 1);
  return LzfCopy{.length = length + kShortest, .distance = (high << 8 | take()) + 1};
}

}  // namespace

std::optional<std::size_t> decoded_lzf_size(std::span<const std::byte> from) {
  std::size_t size = 0;
  while (!from.empty()) {
    const auto copy = take_copy(from);
    if (!copy || copy->distance > size) return std::nullopt;
    if (copy->distance == 0) from = from.subspan(copy->length);
    size += copy->length;
  }
  return size;
}

bool decode_lzf(std::span<const std::byte> from, std::span<std::byte> out) {
  std::size_t done = 0;
  while (!from.empty()) {
    const auto copy = take_copy(from);
    if (!copy || copy->distance > done || copy->length > out.size() - done) return false;
    std::byte* const target = out.data() + done;
    if (copy->distance == 0) {
      std::memcpy(target, from.data(), copy->length);
      from = from.subspan(copy->length);
    } else if (copy->distance >= copy->length) {
      std::memcpy(target, target - copy->distance, copy->length);
    } else {  // the copy repeats what it writes
      for (std::size_t i = 0; i < copy->length; ++i) target[i] = target[i - copy->distance];
    }
    done += copy->length;
  }
  return done == out.size();
}

}  // namespace lockstep::arrays
