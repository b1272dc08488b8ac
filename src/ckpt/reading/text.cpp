// SPDX-License-Identifier: BSD-3-Clause
#include "ckpt/reading/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "ckpt/reading/commands.hpp"

namespace lockstep::ckpt {

namespace {

/// The number of the character that `text` consists of.
char32_t code_of(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  char32_t code = text.size() == 1 ? first : first & (0x7F >> text.size());
  for (const char c : text.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

/// Control characters of Unicode, line separators, and what turns the direction of writing.
bool is_unsafe(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || (code >= 0x200B && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2060 && code <= 0x206F) || code == 0x61C || code == 0xFEFF;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(size, 1));
    const char32_t code = code_of(character);
    if (code == '\\') {
      safe += "\\\\";
    } else if (code == '\n') {
      safe += "\\n";
    } else if (size == 0 || (code < 0x80 && is_unsafe(code))) {
      safe += fmt::format("\\x{:02X}", static_cast<unsigned char>(text[0]));
    } else if (is_unsafe(code)) {
      safe += fmt::format("\\u{:04X}", static_cast<std::uint32_t>(code));
    } else {
      safe += character;
    }
    text.remove_prefix(character.size());
  }
  return safe;
}

std::string human_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 6> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  for (; value >= 1023.995 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

std::string exact_bytes(std::uint64_t bytes) {
  return bytes < 1024 ? fmt::format("{} bytes", bytes) : fmt::format("{} ({} bytes)", human_bytes(bytes), bytes);
}

std::string number_text(double value) { return fmt::format("{:.6g}", value); }

std::string rest_text(std::size_t shown, std::size_t all) {
  return all > shown ? fmt::format("and {} more\n", all - shown) : "";
}

OrderedJson json_of(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

OrderedJson json_of(const checkpoints::Attribute& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return escaped(*text);
  if (const auto* const real = std::get_if<double>(&value)) return json_of(*real);
  return std::get<std::int64_t>(value);
}

OrderedJson json_of(const FileArray& info) {
  OrderedJson row = {{"path", escaped(info.path)},
                     {"name", escaped(info.label)},
                     {"dtype", name_of(info.dtype)},
                     {"shape", info.shape},
                     {"bytes", info.nbytes}};
  if (!info.first_path.empty()) row["alias_of"] = escaped(info.first_path);
  return row;
}

std::string attribute_text(const checkpoints::Attribute& value) {
  if (const auto* const text = std::get_if<std::string>(&value)) return escaped(*text);
  if (const auto* const real = std::get_if<double>(&value)) return number_text(*real);
  return std::to_string(std::get<std::int64_t>(value));
}

void print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw Failure(Exit::io, std::string("the output could not be written: ") + std::strerror(errno));
  }
}

void print(const OrderedJson& document) {
  print(document.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n");
}

}  // namespace lockstep::ckpt
