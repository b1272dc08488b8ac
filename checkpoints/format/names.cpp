// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/format/names.hpp"

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <cstdint>

#include "core/text/text.hpp"

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

std::string quoted(const std::string& kind, const std::string& name) {
  constexpr std::size_t kShown = 200;
  std::string shown = is_utf8(name) ? name : "";
  if (shown.size() != name.size()) {  // whatever it is, it is printed as ASCII
    for (const char c : name) shown += static_cast<unsigned char>(c) < 0x80 ? c : '?';
  }
  if (shown.size() > kShown) {
    std::size_t end = kShown;
    while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;
    shown = shown.substr(0, end) + "...";
  }
  std::string safe;
  for (const char c : shown) {  // a slash may be read as it is, a control character may not
    safe += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? encode_name(std::string(1, c)) : std::string(1, c);
  }
  return kind + " '" + safe + "'";
}

}  // namespace lockstep::checkpoints
