// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/file_store.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>

#include "data/source/hash.hpp"
#include "data/stores/file_reader.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kFiles = 16;  // files: whose content is part of the digest

}  // namespace

std::string FileStore::place(std::int64_t index) const { return below_root(lines_->line(index).path); }

std::string FileStore::mask_place(std::int64_t index) const { return below_root(lines_->line(index).label); }

std::string FileStore::below_root(std::string_view path) const {
  const bool is_whole = path.starts_with('/') || options_.root.empty();
  return (is_whole ? "" : options_.root + "/") + std::string(path);
}

// One check per sample: the list's label is read immediately afterward.
StoredImage FileStore::read(std::int64_t index, ReadBuffer& buffer) const {
  const std::string path = place(index);
  lines_->check_unchanged();
  return read_path(path, buffer);
}

std::string FileStore::name(std::int64_t index) const {
  std::string path(lines_->line(index).path);
  lines_->check_unchanged();
  return path;
}

StoredImage FileStore::read_mask(std::int64_t index, ReadBuffer& buffer) const {
  return read_path(mask_place(index), buffer);
}

StoredImage FileStore::read_path(const std::string& path, ReadBuffer& buffer) const {
  const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
  // A file without bytes would mean that pixels are given.
  if (bytes.empty()) throw DataError(path, "the file is empty; replace the file or exclude it");
  return {.file = bytes};
}

TargetKind FileStore::target_kind() const {
  if (lines_->options().target == ListTarget::none) return TargetKind::none;
  if (lines_->options().target == ListTarget::numbers) return TargetKind::numbers;
  if (lines_->options().target == ListTarget::masks) return TargetKind::masks;
  return options_.has_label_sets ? TargetKind::label_sets : TargetKind::classes;
}

std::int64_t FileStore::label(std::int64_t index) const { return lines_->label(index); }

void FileStore::read_ahead(std::int64_t index) const {
  read_file_ahead(place(index));
  if (lines_->options().target == ListTarget::masks) read_file_ahead(mask_place(index));
}

// A few files stand for the content of all.
std::uint64_t FileStore::digest() const {
  std::call_once(digested_, [this] {
    std::uint64_t hash = lines_->digest(classes());
    ReadBuffer buffer;
    for (std::int64_t i = 0; i < std::min(kFiles, size()); ++i) {
      const std::int64_t index = size() <= kFiles ? i : (size() - 1) / (kFiles - 1) * i;
      const auto add_file = [&](const std::string& path) {
        std::uint64_t content = 0;  // stays 0 if the file cannot be read
        try {
          const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
          content = sampled_hash_of({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
        } catch (const DataError&) {
        }
        hash = hash_of({hash, content});
      };
      add_file(place(index));
      if (target_kind() == TargetKind::masks) add_file(mask_place(index));
    }
    digest_ = hash;
  });
  return digest_;
}

}  // namespace lockstep::data
