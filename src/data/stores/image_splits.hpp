// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>

#include <string>

#include "data/source/given_statistics.hpp"

namespace lockstep::data {

/// Divides a source with one part, and leaves out the images of data.exclude.
ImageSplits with_splits(ImageSplits splits, const Section& data);

/// Whether a key of image_keys() that changes the samples is not at its default.
bool sets_image_keys(const Section& data);

/// Adds the pipelines of section `data` to stores of images.
/// @param normalise   Source::normalise
/// @param statistics  for `normalise,mean=auto`
Splits with_pipelines(const ImageSplits& splits, const Section& data, const OpenOptions& options,
                      const std::string& normalise, const GivenStatistics& statistics = {});

/// Checks images as data.check states. The caller is one process per host.
/// @throws DataError  an image cannot be read, and data.on_error is not `replace`
void check_images(const Splits& splits, const Section& data);

}  // namespace lockstep::data
