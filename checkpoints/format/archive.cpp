// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>

#include "checkpoints/format/names.hpp"
#include "core/text/text.hpp"

namespace lockstep::checkpoints {

namespace {

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

/// The last part of `path` when it lies directly below `group`.
std::optional<std::string> child_name(const std::string& path, const std::string& group) {
  if (parent_of(path) != group) return std::nullopt;
  return path.substr(path.rfind('/') + 1);
}

std::vector<std::string> children(const std::vector<std::string>& paths, const std::string& group) {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    if (auto name = child_name(path, group)) names.push_back(std::move(*name));
  }
  return names;
}

const char* kind_of(const Attribute& value) {
  if (std::holds_alternative<std::int64_t>(value)) return "an integer";
  return std::holds_alternative<double>(value) ? "a real number" : "a text";
}

void require_path(const std::string& path) {
  if (!is_path(path)) throw std::logic_error("Archive: '" + path + "' is not a path; see encode_name");
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void Archive::add_group(const std::string& path) {
  if (path == "/" || attributes_.contains(path)) {
    if (arrays_.contains(path)) throw std::logic_error("Archive: " + path + " is an array, not a group");
    return;
  }
  require_path(path);
  add_group(parent_of(path));
  group_paths_.push_back(path);
  attributes_[path];
}

void Archive::put(const std::string& path, Array array) {
  require_path(path);
  if (attributes_.contains(path)) throw std::logic_error("Archive: " + path + " already exists");
  if (nbytes_of(array.dtype, array.shape) != array.bytes.size()) {
    throw std::logic_error("Archive: " + path + " has " + std::to_string(array.bytes.size()) +
                           " bytes, which do not fit its shape and dtype");
  }
  add_group(parent_of(path));
  array_paths_.push_back(path);
  attributes_[path];
  arrays_.emplace(path, std::move(array));
}

void Archive::link(const std::string& path, const std::string& target) {
  if (!arrays_.contains(target) || first_paths_.contains(target)) {
    throw std::logic_error("Archive: " + target + " is a link itself, so " + path + " cannot be linked to it");
  }
  const Array linked = arrays_.at(target);
  put(path, linked);
  first_paths_[path] = target;
}

void Archive::set(const std::string& path, const std::string& name, Attribute value) {
  if (!is_part(name) || name == kDTypeAttribute) throw std::logic_error("Archive: no attribute may be named " + name);
  if (const auto* text = std::get_if<std::string>(&value)) {
    if (text->size() > kMaxAttributeBytes || text->find('\0') != std::string::npos) {
      throw std::logic_error("Archive: attribute " + name + " of " + path +
                             " is too long or has a NUL; use text_array");
    }
  }
  if (!arrays_.contains(path)) add_group(path);
  attributes_[path][name] = std::move(value);
}

void Archive::append(const Archive& other) {
  other.await_arrival();
  for (const std::string& path : other.group_paths_) add_group(path);
  for (const std::string& path : other.array_paths_) {
    const std::string& first = other.first_path_of(path);
    if (first.empty()) {
      put(path, other.array(path));
    } else {
      link(path, first);
    }
  }
  for (const auto& [path, attributes] : other.attributes_) {
    for (const auto& [name, value] : attributes) set(path, name, value);
  }
}

Archive Archive::with_arrays(const std::function<Array(const std::string&, const Array&)>& replace) const {
  Archive result = *this;
  for (const std::string& path : array_paths_) {
    const std::string& first = first_path_of(path);
    result.arrays_[path] = first.empty() ? replace(path, arrays_.at(path)) : result.arrays_.at(first);
  }
  return result;
}

bool Archive::has(const std::string& path) const { return path == "/" || attributes_.contains(path); }

const Array& Archive::array(const std::string& path) const {
  const auto found = arrays_.find(path);
  if (found == arrays_.end()) {
    throw CheckpointError(origin_, path, has(path) ? "is a group, not an array" : "the array does not exist");
  }
  return found->second;
}

const std::string& Archive::first_path_of(const std::string& path) const {
  static const std::string none;
  const auto found = first_paths_.find(path);
  return found == first_paths_.end() ? none : found->second;
}

bool Archive::has_attribute(const std::string& path, const std::string& name) const {
  return attributes_of(path).contains(name);
}

const Attribute& Archive::attribute(const std::string& path, const std::string& name) const {
  const auto& attributes = attributes_of(path);
  const auto found = attributes.find(name);
  if (found == attributes.end()) throw CheckpointError(origin_, path, "there is no attribute '" + name + "'");
  return found->second;
}

std::int64_t Archive::integer(const std::string& path, const std::string& name) const {
  if (const auto* value = std::get_if<std::int64_t>(&attribute(path, name))) return *value;
  throw CheckpointError(origin_, path,
                        "attribute '" + name + "' is " + kind_of(attribute(path, name)) + ", not an integer");
}

double Archive::real(const std::string& path, const std::string& name) const {
  if (const auto* value = std::get_if<double>(&attribute(path, name))) return *value;
  throw CheckpointError(origin_, path,
                        "attribute '" + name + "' is " + kind_of(attribute(path, name)) + ", not a real number");
}

const std::string& Archive::text(const std::string& path, const std::string& name) const {
  if (const auto* value = std::get_if<std::string>(&attribute(path, name))) return *value;
  throw CheckpointError(origin_, path,
                        "attribute '" + name + "' is " + kind_of(attribute(path, name)) + ", not a text");
}

std::vector<std::string> Archive::arrays_in(const std::string& group) const { return children(array_paths_, group); }

std::vector<std::string> Archive::groups_in(const std::string& group) const { return children(group_paths_, group); }

const std::map<std::string, Attribute>& Archive::attributes_of(const std::string& path) const {
  static const std::map<std::string, Attribute> none;
  const auto found = attributes_.find(path);
  return found == attributes_.end() ? none : found->second;
}

Array text_array(const std::string& text) {
  auto owned = std::make_shared<const std::string>(text);
  const auto bytes = std::as_bytes(std::span(*owned));
  return {.dtype = DType::uint8,
          .shape = {static_cast<std::int64_t>(text.size())},
          .bytes = bytes,
          .owner = std::move(owned)};
}

std::string text_of(const Array& array) {
  if (array.dtype != DType::uint8 || array.shape.size() != 1)
    throw CheckpointError("an array that should be text is not");
  return {reinterpret_cast<const char*>(array.bytes.data()), array.bytes.size()};
}

bool is_part(const std::string& part) {
  if (part.empty() || part.size() > kMaxPartBytes || part == "." || part == "..") return false;
  return std::ranges::none_of(part, [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7F; });
}

bool is_path(const std::string& path) {
  if (path.empty() || path[0] != '/') return false;
  std::size_t depth = 0;
  for (std::size_t begin = 1; begin <= path.size(); ++depth) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (!is_part(path.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return depth <= kMaxDepth;
}

std::optional<std::uint64_t> nbytes_of(DType dtype, const std::vector<std::int64_t>& shape) {
  if (shape.size() > kMaxDimensions) return std::nullopt;
  std::uint64_t bytes = size_of(dtype);
  bool is_empty = false;
  for (const std::int64_t dimension : shape) {
    if (dimension < 0) return std::nullopt;
    is_empty = is_empty || dimension == 0;
    if (!is_empty && __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(dimension), &bytes)) return std::nullopt;
  }
  if (is_empty) return 0;
  return bytes <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ? std::optional(bytes)
                                                                                       : std::nullopt;
}

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

std::string in_quotes(const std::string& name) { return quoted("", name).substr(1); }

}  // namespace lockstep::checkpoints
