// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/rows/row_dataset.hpp"
#include "data/stores/store_chunks.hpp"

namespace lockstep::data {

/// The axes of the images in an array of bytes.
struct ImageAxes {
  PixelShape shape;                 ///< 1, 3 or 4 channels are stored
  bool has_first_channels = false;  ///< [C, H, W] instead of [H, W, C]
};

/// The axes of images; none = the array has no images.
/// @param layout  data.layout: "nhwc", "nchw" or "" = found by the channels
/// @param cited   data.layout in messages
/// @throws ConfigError, DataError  the layout or the name of the array contradicts its shape
std::optional<ImageAxes> image_axes(const RowArray& array, const std::string& layout, const std::string& cited);

/// Images in an array of bytes. The fourth channel, which is alpha, is left out.
class RowImages : public ImageStore, public StoreChunks {
 public:
  RowImages(RowPair rows, const ImageAxes& axes, std::vector<std::string> class_names);

  const StoreFacts& facts() const override { return facts_; }
  StoredImage read(std::int64_t index, ReadBuffer& buffer) const override;
  ImageTarget target(std::int64_t index) const override;
  std::string name(std::int64_t index) const override { return rows_.inputs->name(index); }
  std::string place(std::int64_t index) const override { return rows_.inputs->place(index); }
  std::optional<std::int64_t> chunk_of(std::int64_t index) const override { return rows_.chunk_of(index); }
  std::uint64_t digest() const override;

 private:
  RowPair rows_;
  ImageAxes axes_;
  StoreFacts facts_;
  LazyDigest digest_;
};

}  // namespace lockstep::data
