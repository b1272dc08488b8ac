// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/image_store.hpp>
#include <lockstep/data/transform.hpp>

#include "data/image/pipeline.hpp"

namespace lockstep::data {

/// Mean and standard deviation of the pixels of up to 2000 images, which a keyed permutation selects. Sums are exact,
/// so that the result depends on the images only.
/// @param how         channels, orientation and limits of the decoding
/// @param skips_errors  images that cannot be read do not count
/// @throws DataError  an image cannot be read, or all pixels of a channel are equal
ChannelStatistics measured_statistics(const ImageStore& store, const PipelineOptions& how, bool skips_errors);

}  // namespace lockstep::data
