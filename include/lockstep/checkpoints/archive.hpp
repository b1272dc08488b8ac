// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

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

/// A dense array in row-major order. It borrows its bytes unless `owner` is set.
struct Array {
  DType dtype = DType::uint8;
  std::vector<std::int64_t> shape;    ///< empty for a scalar
  std::span<const std::byte> bytes;   ///< product of shape * size_of(dtype) bytes
  std::shared_ptr<const void> owner;  ///< owner of the bytes; null = the caller
  bool is_stable = false;             ///< nobody changes the bytes while `owner` lives: a snapshot borrows them
};

using Attribute = std::variant<std::int64_t, double, std::string>;

/// A tree of named arrays and attributes: the content of one checkpoint, in memory.
///
/// A path is absolute ("/model/params/conv1.weight"). Groups are created when something is put below them. The order of
/// insertion is the order in the file. This class is independent of tensors and ranks.
///
/// The parts between the slashes are UTF-8 of 1 to 1024 bytes, not "." or "..", without control characters: encode_name
/// converts any name to such a part.
class Archive {
 public:
  /// @throws std::logic_error  the path is malformed or exists, or the bytes do not match shape and dtype
  void put(const std::string& path, Array array);
  /// Adds a second path of an existing array (a tied weight). The file contains the array once, with two names.
  /// @throws std::logic_error  `path` is malformed or exists, or `target` is not an array or is a link itself
  void link(const std::string& path, const std::string& target);
  /// Sets an attribute of a group or array. Creates the group if the path does not exist.
  /// @throws std::logic_error  the path or name is malformed, the name is "torch_dtype" (reserved), or a text is longer
  ///                           than 60000 bytes (see text_array) or contains NUL
  void set(const std::string& path, const std::string& name, Attribute value);
  /// Creates an empty group if it does not exist.
  void add_group(const std::string& path);

  /// Appends the content of another archive. Waits for bytes of it that have not arrived.
  /// @throws std::logic_error  a path already exists
  void append(const Archive& other);

  /// The same tree with other arrays. A link to an array is a link to its replacement.
  /// @param replace  called for each array that is not a link
  Archive with_arrays(const std::function<Array(const std::string& path, const Array& array)>& replace) const;

  /// The bytes of arrays can arrive later than the archive, for example as copies from a GPU.
  /// @param arrival  returns when all of them are there, or throws; it can be called repeatedly and from any thread
  void set_arrival(std::function<void()> arrival) { arrival_ = std::move(arrival); }
  /// Returns when the bytes of all arrays can be read: at once, unless set_arrival was called.
  /// @throws std::exception  they will not arrive
  void await_arrival() const {
    if (arrival_) arrival_();
  }

  bool has(const std::string& path) const;
  /// @throws CheckpointError  the path does not exist or is not an array
  const Array& array(const std::string& path) const;
  /// The first path of the array with the link `path`; empty if `path` is not a link.
  const std::string& first_path_of(const std::string& path) const;
  bool has_attribute(const std::string& path, const std::string& name) const;
  /// @throws CheckpointError  the attribute does not exist or has another type
  std::int64_t integer(const std::string& path, const std::string& name) const;
  double real(const std::string& path, const std::string& name) const;
  const std::string& text(const std::string& path, const std::string& name) const;

  /// Names of the arrays directly below `group`, in order.
  std::vector<std::string> arrays_in(const std::string& group) const;
  /// Names of the groups directly below `group`, in order.
  std::vector<std::string> groups_in(const std::string& group) const;
  /// Empty if the path does not exist.
  const std::map<std::string, Attribute>& attributes_of(const std::string& path) const;

  /// All group paths, each after its parent, without the root "/".
  const std::vector<std::string>& group_paths() const noexcept { return group_paths_; }
  /// All array paths, including links, in order of insertion.
  const std::vector<std::string>& array_paths() const noexcept { return array_paths_; }

  /// The origin, for messages: the path of the file, or "archive" if it was created in memory.
  const std::string& origin() const noexcept { return origin_; }
  void set_origin(std::string origin) { origin_ = std::move(origin); }

 private:
  const Attribute& attribute(const std::string& path, const std::string& name) const;

  std::string origin_ = "archive";
  std::vector<std::string> array_paths_;
  std::vector<std::string> group_paths_;
  std::map<std::string, Array> arrays_;
  std::map<std::string, std::string> first_paths_;  // first path of the array, by path of a link
  std::map<std::string, std::map<std::string, Attribute>> attributes_;
  std::function<void()> arrival_;
};

/// An array with a text as bytes (uint8, 1-D), for documents such as the resolved configuration.
Array text_array(const std::string& text);
std::string text_of(const Array& array);

/// Converts any name to one part of a path: percent-encodes '/', '%', control characters and the names "." and "..".
std::string encode_name(const std::string& name);
/// @throws CheckpointError  '%' is not followed by two hexadecimal digits
std::string decode_name(const std::string& part);

}  // namespace lockstep::checkpoints
