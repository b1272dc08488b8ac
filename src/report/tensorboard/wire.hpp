// SPDX-License-Identifier: BSD-3-Clause
// Protocol buffers' wire format, as far as TensorBoard's events need it.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::report {

/// A message that is put together field by field.
class Message {
 public:
  Message& integer(unsigned field, std::int64_t value) {
    key(field, 0);
    variable(static_cast<std::uint64_t>(value));
    return *this;
  }
  Message& real(unsigned field, double value) {
    key(field, 1);
    fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }
  Message& single(unsigned field, float value) {
    key(field, 5);
    fixed(std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }
  /// A text, bytes, or the message that a field holds.
  Message& bytes(unsigned field, std::string_view value) {
    key(field, 2);
    variable(value.size());
    text_ += value;
    return *this;
  }
  Message& reals(unsigned field, std::span<const double> values) {
    key(field, 2);
    variable(8 * values.size());
    for (const double value : values) fixed(std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }

  const std::string& text() const noexcept { return text_; }

 private:
  void key(unsigned field, unsigned type) { variable(field << 3 | type); }
  void variable(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  void fixed(std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) text_ += static_cast<char>(value >> (8 * i) & 0xFF);
  }

  std::string text_;
};

}  // namespace lockstep::report
