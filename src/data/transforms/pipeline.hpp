// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/draw.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/codecs/decode.hpp"

namespace lockstep::data {

struct PipelineOptions {
  std::vector<std::string> lines;  ///< "name,key=value,...", in order; without a tensor transform, `to_float` is added
  std::string key = "data.transform";  ///< key of the lines, for messages
  int channels = 3;                    ///< 1 or 3
  std::uint64_t seed = 0;
  bool is_training = true;      ///< false = random transforms are refused
  bool decodes_exactly = true;  ///< false = JPEG files can be reduced during decoding
  bool applies_orientation = false;
  std::int64_t max_bytes = kMaxImageBytes;
  bool has_masks = false;             ///< transforms that do not accept masks are refused
  std::vector<int> mask_values = {};  ///< stored value of each class; empty = values are classes
  /// The statistics for `normalize,mean=auto`; required if needs_statistics(lines).
  std::optional<ChannelStatistics> statistics = {};
};

/// Whether a line is `normalize,mean=auto`, which needs statistics of the training images.
bool needs_statistics(const std::vector<std::string>& lines);

/// Converts stored images to tensors: decodes, draws parameters and applies transforms.
///
/// A result is a pure function of the image, the lines, the seed, the epoch and the position. It does not depend on the
/// thread or on other samples. Number j of line k is random::bits(seed, Stream::augment, epoch, position,
/// (k << 32) + j). All members are thread-safe.
class Pipeline {
 public:
  /// @throws ConfigError  a line has an unknown name or option, or the stages are not in order
  explicit Pipeline(const PipelineOptions& options, const std::vector<TransformRow>& rows = builtin_transforms());
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  int channels() const noexcept { return options_.channels; }
  /// Number of images per sample: 1, or more with `multi_crop`.
  int crops() const noexcept;
  /// The size of every result; nullopt if it depends on the size of the input image.
  /// @param input  the size of all input images, if they have one
  std::optional<ImageSize> size(std::optional<ImageSize> input = std::nullopt, int crop = 0) const;

  /// Transforms one sample.
  /// @param out  channels x height x width values
  /// @throws DataError  the image is damaged, or has a size that a transform or the result does not accept; the message
  ///                    does not contain a file name
  void run(const StoredImage& stored, const batch::Draw& draw, std::span<float> out, Workspace& workspace,
           int crop = 0) const;
  /// The second half of `run`: converts the pixels of the last run_pixels of this workspace.
  void write_planes(std::span<float> out, Workspace& workspace) const;
  /// The same in the order height x width x channels. Requires a byte_table().
  void write_channels_last(std::span<float> out, Workspace& workspace) const;
  /// The pixels before the tensor transforms, for `data.output=uint8` and contact sheets. The result is in
  /// workspace.patch.image, height x width x channels.
  void run_pixels(const StoredImage& stored, const batch::Draw& draw, Workspace& workspace, int crop = 0) const;
  /// Decodes the mask of the image that this workspace transformed last, and moves its pixels in the same way. The
  /// result is in workspace.mask.
  /// @param classes  classes are in [0, classes), or 255 = ignored; 0 = any class
  /// @throws DataError  the mask is damaged, has another size than the image, or contains another class
  void run_mask(const StoredImage& stored, std::int64_t classes, Workspace& workspace) const;
  /// The parameters of the last run_pixels of this workspace as text, "random_resized_crop top=3, ...; ...".
  std::string drawn_text(const Workspace& workspace, int crop = 0) const;
  /// The tensor transforms as a function of each pixel's byte; nullopt if they are more than that (random_erasing).
  std::optional<ByteTable> byte_table() const;
  /// The name of the first tensor transform that is more than that; empty = none.
  std::string float_transform() const;
  const PipelineOptions& options() const noexcept { return options_; }
  /// The conversion of bytes to float32 with which the tensor transforms begin.
  const ByteTable& conversion() const noexcept { return first_table_; }

 private:
  struct PixelStep;
  struct Line;
  void draw_all(const batch::Draw& draw, ImageSize size, int crop, Workspace& workspace) const;
  void find_parts(int crop, Workspace& workspace) const;
  void decode(const StoredImage& stored, const ImageHeader& header, int crop, Workspace& workspace) const;
  void check_size(std::size_t numbers, const Image& image) const;

  PipelineOptions options_;
  std::vector<Line> lines_;
  std::size_t pixel_lines_ = 0;        ///< number of lines of stage `pixels` or `crops`
  ByteTable first_table_;              ///< the conversion to float32
  std::size_t first_tensor_line_ = 0;  ///< first line that is not part of this conversion
};

}  // namespace lockstep::data
