// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "data/stores/image_dataset.hpp"

namespace lockstep::data {

/// Converts the first image and 16 more, evenly spaced, as training would.
/// @throws DataError  one of them cannot be read
void check_some(const ImageDataset& dataset);

/// Converts all images with all processors of this process, with a line of progress.
/// @param name  of the split, for the progress
/// @throws DataError  images cannot be read; the message states their number and the first one
void check_all(const ImageDataset& dataset, const std::string& name);

}  // namespace lockstep::data
