// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/store/checkpoint_index.hpp"
#include "ckpt/reading/values.hpp"

namespace lockstep::ckpt {

/// One array of a file. Digest and statistics are known if the file is one of Lockstep's.
struct FileArray : checkpoints::IndexedArray {
  std::string label;  ///< name in every format: "conv1.weight" for this path; other paths are their own name
};

/// A file that `ckpt` looks into: one of Lockstep's or of another program.
class InspectedFile {
 public:
  /// @param path  of a file, or of the folder of one checkpoint
  /// @throws CheckpointError  it cannot be read, with the reason
  static InspectedFile open(const std::string& path);

  /// The folder of a checkpoint in shards.
  const std::string& path() const noexcept { return path_; }
  /// "lockstep checkpoint", "safetensors", ...
  const std::string& kind() const noexcept { return kind_; }
  bool is_own() const noexcept { return is_own_; }
  std::uint64_t file_bytes() const noexcept { return file_bytes_; }

  const std::vector<FileArray>& arrays() const noexcept { return arrays_; }
  /// Paths of the groups, each after its parent, the root "/" first.
  std::vector<std::string> groups() const;
  const std::map<std::string, checkpoints::Attribute>& attributes(const std::string& path) const;
  /// Null if there is no such attribute, or it has another type.
  template <class Value>
  const Value* attribute(const std::string& path, const std::string& name) const {
    const auto found = attributes(path).find(name);
    return found == attributes(path).end() ? nullptr : std::get_if<Value>(&found->second);
  }

  checkpoints::Array read(const FileArray& info) const;
  /// The text of an array that contains one, such as "/meta/config_ini"; "" if there is none.
  std::string document(const std::string& path) const;
  /// The digest of the bytes as they are now: checkpoints::array_digest.
  std::string digest(const FileArray& info) const;
  Statistics statistics(const FileArray& info) const;

  /// Finds by path, by label, or by the end of a path where that is clear.
  /// @throws Failure  no such array (with the nearest), or several
  const FileArray& find(const std::string& name) const;
  /// Whether there is a group of that path.
  bool has_group(const std::string& path) const;

 private:
  InspectedFile() = default;
  void list_own();
  void list_foreign();
  const checkpoints::Archive& groups_archive() const;

  std::string path_;
  std::string kind_;
  bool is_own_ = true;
  std::uint64_t file_bytes_ = 0;
  std::vector<FileArray> arrays_;
  mutable std::shared_ptr<const checkpoints::Archive> groups_;  ///< read when first requested
  mutable std::shared_ptr<const checkpoints::Archive> whole_;   ///< likewise, where all arrays fit into memory
};

/// "conv1.weight" of "/model/params/conv1.weight" and of "/conv1.weight"; other paths stay.
std::string label_of(const std::string& path);

/// The entries of a document by key: "optim.lr" of a configuration, "hosts.0" of an environment.
using Entries = std::map<std::string, std::string>;

/// Parses the text of an array that contains a document: /meta/config_ini or /meta/env_json. Values of a key that
/// occurs several times are joined by newlines.
/// @return  nullopt for other arrays, or if the text is malformed
std::optional<Entries> entries_of(const std::string& path, const std::string& text);

}  // namespace lockstep::ckpt
