// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image_store.hpp>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/stores/list_text.hpp"

namespace lockstep::data {

/// The image files of a list.
class FileStore : public ImageStore {
 public:
  struct FileStoreOptions {
    std::string root;  ///< folder to which the paths of the list are relative
    std::int64_t classes = 0;
    std::vector<std::string> class_names = {};
    std::int64_t max_file_bytes = 0;
    bool has_label_sets = false;  ///< images can have several classes
  };

  FileStore(std::unique_ptr<const ListLines> lines, FileStoreOptions options)
      : lines_(std::move(lines)), options_(std::move(options)) {}

  std::int64_t size() const override { return lines_->size(); }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override;
  TargetKind target_kind() const override;
  std::int64_t label(std::int64_t index) const override;
  std::vector<std::int64_t> labels(std::int64_t index) const override { return lines_->labels(index); }
  double number(std::int64_t index) const override { return lines_->number(index); }
  StoredImage read_mask(std::int64_t index, ReadBuffer& buffer) const override;
  std::string mask_place(std::int64_t index) const override;
  std::string name(std::int64_t index) const override;
  std::string place(std::int64_t index) const override;
  std::int64_t classes() const override { return options_.classes; }
  std::vector<std::string> class_names() const override { return options_.class_names; }
  void read_ahead(std::int64_t index) const override;
  std::uint64_t digest() const override;

 private:
  std::string below_root(std::string_view path) const;
  StoredImage read_path(const std::string& path, ReadBuffer& buffer) const;

  std::unique_ptr<const ListLines> lines_;
  FileStoreOptions options_;
  mutable std::once_flag digested_;
  mutable std::uint64_t digest_ = 0;
};

}  // namespace lockstep::data
