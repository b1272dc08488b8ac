// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image_store.hpp>
#include <lockstep/data/transform.hpp>

#include "data/image/pipeline.hpp"

namespace lockstep::data {

/// The largest class in the masks of up to 2000 images, plus 1. The same permutation selects the images.
/// @param skips_errors  masks that cannot be read do not count
/// @throws DataError  a mask cannot be read, or all pixels are ignored
std::int64_t count_mask_classes(const ImageStore& store, std::int64_t max_bytes, bool skips_errors);

/// Mean and standard deviation of the pixels of up to 2000 images, which a keyed permutation selects. Sums are exact,
/// so that the result depends on the images only.
/// @param how         channels, orientation and limits of the decoding
/// @param skips_errors  images that cannot be read do not count
/// @throws DataError  an image cannot be read, or all pixels of a channel are equal
ChannelStatistics measured_statistics(const ImageStore& store, const PipelineOptions& how, bool skips_errors);

}  // namespace lockstep::data
