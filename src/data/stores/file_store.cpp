// SPDX-License-Identifier: BSD-3-Clause
#include "data/stores/file_store.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <utility>

#include "data/stores/file_reader.hpp"

namespace lockstep::data {

namespace {

constexpr std::int64_t kFiles = 16;  // files: whose content is part of the digest

TargetKind kind_of(ListTarget target, bool has_label_sets) {
  switch (target) {
    case ListTarget::none:
      return TargetKind::none;
    case ListTarget::numbers:
      return TargetKind::numbers;
    case ListTarget::masks:
      return TargetKind::masks;
    default:
      return has_label_sets ? TargetKind::label_sets : TargetKind::classes;
  }
}

}  // namespace

FileStore::FileStore(std::shared_ptr<const ListLines> lines, FileStoreOptions options)
    : lines_(std::move(lines)), options_(std::move(options)) {
  const TargetKind kind = kind_of(lines_->options().target, options_.has_label_sets);
  facts_ = {.size = lines_->size(),
            .targets = options_.are_masks ? TargetKind::none : kind,
            .classes = options_.classes,
            .class_names = options_.class_names,
            .has_files = true};
  if (facts_.targets != TargetKind::masks) return;
  FileStoreOptions masks = options_;
  masks.are_masks = true;
  facts_.masks = std::make_shared<FileStore>(lines_, std::move(masks));
}

std::string_view FileStore::listed_path(std::int64_t index) const {
  const ListLine line = lines_->line(index);
  return options_.are_masks ? line.label : line.path;
}

std::string FileStore::place(std::int64_t index) const {
  const std::string_view path = listed_path(index);
  const bool is_whole = path.starts_with('/') || options_.root.empty();
  return (is_whole ? "" : options_.root + "/") + std::string(path);
}

// One check per sample: the list's label is read immediately afterward.
StoredImage FileStore::read(std::int64_t index, ReadBuffer& buffer) const {
  const std::string path = place(index);
  lines_->check_unchanged();
  const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
  // A file without bytes would mean that pixels are given.
  if (bytes.empty()) throw DataError(path, "the file is empty; replace the file or exclude it");
  return {.file = bytes};
}

std::string FileStore::name(std::int64_t index) const {
  std::string path(listed_path(index));
  lines_->check_unchanged();
  return path;
}

ImageTarget FileStore::target(std::int64_t index) const {
  if (facts_.targets == TargetKind::numbers) return {.number = lines_->number(index)};
  if (facts_.targets == TargetKind::label_sets) return {.classes = lines_->labels(index)};
  if (facts_.targets != TargetKind::classes) return {};
  const std::int64_t label = lines_->label(index);
  return {.classes = {options_.numbers.empty() ? label : options_.numbers.at(static_cast<std::size_t>(label))}};
}

// A few files stand for the content of all.
std::uint64_t FileStore::digest() const {
  return digest_.get([this] {
    std::uint64_t hash = lines_->digest(facts_.classes);
    ReadBuffer buffer;
    const auto add_file = [&](const std::string& path) {
      std::uint64_t content = 0;  // stays 0 if the file cannot be read
      try {
        const auto bytes = read_file(path, options_.max_file_bytes, buffer.bytes);
        content = sampled_hash_of({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
      } catch (const DataError&) {
      }
      hash = hash_of({hash, content});
    };
    for (std::int64_t i = 0; i < std::min(kFiles, size()); ++i) {
      const std::int64_t index = size() <= kFiles ? i : (size() - 1) / (kFiles - 1) * i;
      add_file(place(index));
      if (facts_.masks) add_file(facts_.masks->place(index));
    }
    return hash;
  });
}

}  // namespace lockstep::data
