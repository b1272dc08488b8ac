// SPDX-License-Identifier: BSD-3-Clause
#include "report/tensorboard/wire.hpp"

#include <array>

namespace lockstep::report {

namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41 from right to left
constexpr std::uint32_t kMask = 0xA282EAD8;

constexpr std::array<std::uint32_t, 256> kOfByte = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) == 1 ? kPolynomial : 0);
    table[byte] = crc;
  }
  return table;
}();

std::string masked_checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian(((crc >> 15) | (crc << 17)) + kMask, 4);
}

}  // namespace

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xFF);
  return text;
}

std::string Message::variable(std::uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

std::uint32_t crc32c(std::string_view bytes) noexcept {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) crc = kOfByte[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

std::string event_frame(std::string_view payload) {
  const std::string length = little_endian(payload.size(), 8);
  return length + masked_checksum(length) + std::string(payload) + masked_checksum(payload);
}

}  // namespace lockstep::report
