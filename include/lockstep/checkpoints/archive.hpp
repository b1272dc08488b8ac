// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::checkpoints {

/// A dense array in row-major order. Borrows its bytes unless `owner` holds them.
struct Array {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;    ///< empty for a scalar
  std::span<const std::byte> bytes;   ///< product of shape, times size_of(dtype)
  std::shared_ptr<const void> owner;  ///< keeps the bytes alive; null when the caller does
};

using Attribute = std::variant<std::int64_t, double, std::string>;

/// A tree of named arrays and attributes: the content of one checkpoint, in memory.
///
/// A path is absolute ("/model/params/conv1.weight"); groups come into being with what is put below them. Order of
/// insertion is kept and becomes the order of listing in the file. Knows no tensor and no rank.
///
/// The parts between the slashes are UTF-8 of 1 to 1024 bytes, not "." or "..", without control characters: encode_name
/// makes such a part of any name.
class Archive {
 public:
  /// @throws std::logic_error  the path is malformed or taken, or bytes do not fit shape and dtype
  void put(const std::string& path, Array array);
  /// A second path of an array that is there already (a tied weight): the file holds it once, with two names.
  /// @throws std::logic_error  `path` is malformed or taken, or `target` is no array or has the other name itself
  void link(const std::string& path, const std::string& target);
  /// An attribute of a group or array. Sets the path's group up when there is nothing yet.
  /// @throws std::logic_error  a malformed path or name, the reserved name "torch_dtype", or a text that is longer than
  ///                           60000 bytes (see text_array) or has a NUL character
  void set(const std::string& path, const std::string& name, Attribute value);
  /// An empty group, where there is none yet.
  void add_group(const std::string& path);

  /// Puts all that another archive holds behind what is here.
  /// @throws std::logic_error  something of it is here already
  void append(const Archive& other);

  /// The same tree with other arrays in the places of its own; links stay links.
  Archive with_bytes(const std::function<Array(const Array&)>& replace) const;

  bool has(const std::string& path) const;
  /// @throws CheckpointError  nothing there, or no array
  const Array& array(const std::string& path) const;
  /// The path that array `path` was put under first; empty when that is `path` itself.
  const std::string& first_path_of(const std::string& path) const;
  bool has_attribute(const std::string& path, const std::string& name) const;
  /// @throws CheckpointError  nothing there, or an attribute of another type
  std::int64_t integer(const std::string& path, const std::string& name) const;
  double real(const std::string& path, const std::string& name) const;
  const std::string& text(const std::string& path, const std::string& name) const;

  /// Names of the arrays directly below `group`, in order.
  std::vector<std::string> arrays_in(const std::string& group) const;
  /// Names of the groups directly below `group`, in order.
  std::vector<std::string> groups_in(const std::string& group) const;
  /// None for a path that is not there.
  const std::map<std::string, Attribute>& attributes_of(const std::string& path) const;

  /// All group paths, each after its parent, without the root "/".
  const std::vector<std::string>& group_paths() const noexcept { return group_paths_; }
  /// All array paths, links too, in order of insertion.
  const std::vector<std::string>& array_paths() const noexcept { return array_paths_; }

  /// Where it was read from, for messages; "archive" when it was made in memory.
  const std::string& origin() const noexcept { return origin_; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  const Attribute& attribute(const std::string& path, const std::string& name) const;

  std::string origin_ = "archive";
  std::vector<std::string> array_paths_;
  std::vector<std::string> group_paths_;
  std::map<std::string, Array> arrays_;
  std::map<std::string, std::string> first_paths_;  // of links
  std::map<std::string, std::map<std::string, Attribute>> attributes_;
};

/// One array of text as bytes (uint8, 1-D): how documents such as the resolved configuration are stored.
Array text_array(const std::string& text);
std::string text_of(const Array& array);

/// Any name as one part of a path: percent-encodes '/', '%', control characters and the whole names "." and "..".
std::string encode_name(const std::string& name);
/// @throws CheckpointError  a '%' without two hexadecimal digits
std::string decode_name(const std::string& part);

}  // namespace lockstep::checkpoints
