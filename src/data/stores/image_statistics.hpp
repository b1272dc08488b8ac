// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image.hpp>
#include <lockstep/data/transform.hpp>

#include <cstdint>
#include <vector>

#include "data/transforms/pipeline.hpp"

namespace lockstep::data {

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
