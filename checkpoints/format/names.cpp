// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <cstdint>

namespace lockstep::checkpoints {

namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

std::string encode_name(const std::string& name) {
  const bool is_dots = name == "." || name == "..";
  std::string part;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_dots || byte < 0x20 || byte == 0x7F || c == '/' || c == '%') {
      part += '%';
      part += "0123456789ABCDEF"[byte >> 4];
      part += "0123456789ABCDEF"[byte & 15];
    } else {
      part += c;
    }
  }
  return part;
}

std::string decode_name(const std::string& part) {
  std::string name;
  for (std::size_t i = 0; i < part.size(); ++i) {
    if (part[i] != '%') {
      name += part[i];
      continue;
    }
    const int high = i + 2 < part.size() ? hex_value(part[i + 1]) : -1;
    const int low = i + 2 < part.size() ? hex_value(part[i + 2]) : -1;
    if (high < 0 || low < 0)
      throw CheckpointError("name '" + part + "': '%' is not followed by two hexadecimal digits");
    name += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return name;
}

}  // namespace lockstep::checkpoints
