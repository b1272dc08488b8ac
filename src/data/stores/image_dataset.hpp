// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>

#include <memory>
#include <string>
#include <vector>

#include "data/image/pipeline.hpp"

namespace lockstep::data {

/// The images of a store as float32 tensors [C, H, W], which a pipeline writes in place. The values of a sample are
/// "data", further crops "crop1", "crop2", ..., and "label": an int64 class, float32 [classes] of 0 and 1, a float32
/// number [1], int64 classes of pixels [H, W] (255 in a mask becomes kIgnored), or kIgnored.
class ImageDataset : public SampleDataset {
 public:
  struct Options {
    PipelineOptions pipeline;
    const std::vector<TransformRow>* rows = &builtin_transforms();
    std::shared_ptr<SampleErrors> errors = nullptr;  ///< replaced samples; null = errors are thrown
    std::int64_t classes = 0;
    std::vector<std::string> class_names = {};
  };

  /// Where the size of the results depends on the images, the first image defines it.
  /// @throws ConfigError  a line is malformed
  /// @throws DataError    the store is empty, or the first image cannot be read
  ImageDataset(std::shared_ptr<const ImageStore> store, Options options);

  std::int64_t size() const override { return store_->size(); }
  Task task() const override { return task_; }
  std::vector<Field> layout() const override { return fields_; }
  /// Images that cannot be read are replaced by the first good one of the next 16, if `errors` is given.
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override;
  void read_ahead(const batch::Draw& draw) const override { store_->read_ahead(draw.index); }
  std::string place(const batch::Draw& draw) const override { return store_->place(draw.index); }
  std::string sample_name(std::int64_t index) const override { return store_->name(index); }
  std::vector<std::int64_t> labels() const override;
  std::vector<double> aspect_ratios() const override;
  std::uint64_t digest() const override { return store_->digest(); }

  const ImageStore& store() const noexcept { return *store_; }
  const Pipeline& pipeline() const noexcept { return pipeline_; }

 private:
  struct Scratch;

  static Scratch& scratch();
  /// Adds the place of an image to the errors of `call`.
  template <class Call>
  void with_place(std::int64_t index, const Call& call) const;
  ImageSize size_of_first(int crop) const;
  void fill_from(std::int64_t index, const batch::Draw& draw, batch::ValueMap& row, Scratch& scratch) const;
  void fill_label(std::int64_t index, const at::Tensor& label, Scratch& scratch) const;
  void fill_mask(std::int64_t index, const at::Tensor& label, Scratch& scratch) const;

  std::shared_ptr<const ImageStore> store_;
  std::shared_ptr<SampleErrors> errors_;
  std::int64_t max_bytes_;
  Pipeline pipeline_;
  std::vector<Field> fields_;
  std::vector<ImageSize> sizes_;  // of each crop
  Task task_;
};

}  // namespace lockstep::data
