// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::data {

/// The lines that convert the images of the splits.
struct TransformLines {
  std::vector<std::string> train;
  std::vector<std::string> val;
};

/// The lines of data.transform and data.val_transform, else those of data.augmentation. Without any, `train` is the
/// line `normalize` and, without data.val_transform, `val` has the evaluation_lines of `train`.
/// @param normalize     line that is used where no line is given
/// @param is_always_normalized  add this line also to lines without a conversion to float32
TransformLines transform_lines(const Section& data, const std::vector<TransformRow>& rows, const std::string& normalize,
                               bool is_always_normalized);

/// Adds the transforms to the keys data.transform and data.val_transform as KeySpec::parts.
void add_transform_forms(KeySpecs& keys, const std::vector<TransformRow>& rows);

/// data.mask_values: the stored value of each class; empty = values are classes.
/// @throws ConfigError  a value is listed twice, or there is only one
std::vector<int> mask_values(const Section& data);

/// Channels of the tensors: data.channels, or those of the stored pixels, or 3 for files.
int channels_of(const Section& data, const ImageStore& store);

/// The options of a pipeline without lines and statistics.
PipelineOptions pipeline_options(const Section& data, const ImageStore& store, std::uint64_t seed, bool is_training);

/// The values of pixels in up to 2000 masks, ascending. The same permutation selects the images.
/// @param stops_early   end as soon as two values other than 255 are found
/// @param skips_errors  masks that cannot be read do not count
/// @throws DataError  a mask cannot be read
std::vector<int> values_in_masks(const ImageStore& masks, std::int64_t max_bytes, bool stops_early, bool skips_errors);

/// Mean and standard deviation of the pixels of up to 2000 images, which a keyed permutation selects. Sums are exact,
/// so that the result depends on the images only.
/// @param how         channels, orientation and limits of the decoding
/// @param skips_errors  images that cannot be read do not count
/// @throws DataError  an image cannot be read, or all pixels of a channel are equal
ChannelStatistics measured_statistics(const ImageStore& store, const PipelineOptions& how, bool skips_errors);

}  // namespace lockstep::data
