// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/data/source.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::data {

/// The type of the pixels in a batch (data.output).
enum class PixelOutput {
  floats,
  bytes,
  either  ///< the loader chooses; there are SampleLayout::byte_fields if the transforms allow it
};

/// The images of a store as float32 tensors [C, H, W], which a pipeline writes in place. The values of a sample are
/// "data", further crops "crop1", "crop2", ..., and "label": an int64 class, float32 [classes] of 0 and 1, float32
/// numbers [K], int64 classes of pixels [H, W] (255 in a mask becomes kIgnored), or kIgnored. In byte_fields, the
/// images are uint8 tensors with adjacent channels.
class ImageDataset : public SampleDataset,
                     public SampleClasses,
                     public AspectRatios,
                     public SampleNames,
                     public SampleChunks,
                     public TimedLoading,
                     public SampleFiles {
 public:
  struct ImageDatasetOptions {
    PipelineOptions pipeline;
    const std::vector<TransformRow>* rows = &builtin_transforms();
    std::shared_ptr<SampleErrors> errors = nullptr;  ///< replaced samples; null = errors are thrown
    std::int64_t classes = 0;
    std::vector<std::string> class_names = {};
    std::vector<std::string> class_ids = {};  ///< see Task::class_ids
    PixelOutput output = PixelOutput::either;
  };

  /// If the size of the results depends on the images, the first image defines it.
  /// @throws ConfigError  a line is malformed, or changes float32 values although the output is bytes
  /// @throws DataError    the store is empty, or the first image cannot be read
  ImageDataset(std::shared_ptr<const ImageStore> store, ImageDatasetOptions options);

  std::int64_t size() const override { return store_->size(); }
  Task task() const override { return task_; }
  SampleLayout layout() const override { return layout_; }
  /// Images that cannot be read are replaced by the first good one of the next 16, if `errors` is given.
  void fill(const batch::Draw& draw, batch::ValueMap& row) const override;
  void read_ahead(const batch::Draw& draw) const override;
  std::string place(const batch::Draw& draw) const override { return store_->place(draw.index); }
  std::string sample_name(std::int64_t index) const override { return store_->name(index); }
  std::vector<std::int64_t> labels() const override;
  std::vector<double> aspect_ratios() const override;
  /// Empty = the images are not in chunks.
  std::vector<std::int64_t> chunks() const override;
  ChunkBytes chunk_bytes() const override;
  LoadTimes load_times() const override;
  std::uint64_t digest() const override;

  const ImageStore& store() const noexcept { return *store_; }
  const Pipeline& pipeline() const noexcept { return pipeline_; }

 private:
  struct Scratch;

  static Scratch& scratch();
  void offer_bytes(PixelOutput output, const std::string& key);
  ImageSize size_of_first(int crop) const;
  void fill_image(const StoredImage& stored, const batch::Draw& draw, int crop, const at::Tensor& tensor,
                  Scratch& scratch) const;
  void check_size(int crop, ImageSize size) const;
  /// Loads a sample and measures the time, for one of 64 samples of each thread.
  void fill_measured(std::int64_t index, const batch::Draw& draw, batch::ValueMap& row, Scratch& scratch) const;
  void fill_from(std::int64_t index, const batch::Draw& draw, batch::ValueMap& row, Scratch& scratch) const;
  void fill_label(std::int64_t index, const at::Tensor& label, Scratch& scratch) const;
  void fill_mask(std::int64_t index, const at::Tensor& label, Scratch& scratch) const;

  std::shared_ptr<const ImageStore> store_;
  std::shared_ptr<SampleErrors> errors_;
  std::int64_t max_bytes_;
  Pipeline pipeline_;
  SampleLayout layout_;
  std::vector<ImageSize> sizes_;  // size of each crop
  Task task_;
  mutable std::array<std::atomic<std::int64_t>, 4> times_ = {};  // samples, and nanoseconds as in LoadTimes
};

/// Adds the place of an image to the errors of `call`.
template <class Call>
auto with_place(const ImageStore& store, std::int64_t index, const Call& call) {
  try {
    return call();
  } catch (const DataError& error) {
    throw DataError(store.place(index), error.what());
  }
}

}  // namespace lockstep::data
