// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

// Protocol buffers' wire format, as far as TensorBoard's events need it, and how event files are divided into records.
namespace lockstep::report {

/// The lowest bytes of a number, the least significant first.
std::string little_endian(std::uint64_t value, int bytes);

/// A message that is put together field by field.
class Message {
 public:
  Message& integer(unsigned field, std::int64_t value) {
    return add(field, 0, variable(static_cast<std::uint64_t>(value)));
  }
  Message& real(unsigned field, double value) {
    return add(field, 1, little_endian(std::bit_cast<std::uint64_t>(value), 8));
  }
  Message& single(unsigned field, float value) {
    return add(field, 5, little_endian(std::bit_cast<std::uint32_t>(value), 4));
  }
  /// A text, bytes, or the message that a field holds.
  Message& bytes(unsigned field, std::string_view value) {
    return add(field, 2, variable(value.size()) + std::string(value));
  }
  Message& reals(unsigned field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) packed += little_endian(std::bit_cast<std::uint64_t>(value), 8);
    return bytes(field, packed);
  }

  const std::string& text() const noexcept { return text_; }

 private:
  /// A number in as few bytes as it needs, 7 bits in each.
  static std::string variable(std::uint64_t value);

  Message& add(unsigned field, unsigned type, const std::string& value) {
    text_ += variable(field << 3 | type) + value;
    return *this;
  }

  std::string text_;
};

/// The checksum of RFC 3720, appendix B.4: polynomial 0x1EDC6F41 with its bits reversed.
std::uint32_t crc32c(std::string_view bytes) noexcept;

/// One record: length (8 bytes), its masked CRC-32C (4), the payload, its masked CRC-32C (4); numbers little-endian.
/// The mask, a rotation and an addition, keeps apart the checksum of a text from that of a text which ends in a
/// checksum.
std::string event_frame(std::string_view payload);

}  // namespace lockstep::report
