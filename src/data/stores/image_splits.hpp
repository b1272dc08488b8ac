// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>
#include <lockstep/data/transform.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

// The facts that runs keep about the images of their training: the statistics of `normalize,mean=auto`, and the
// transforms.

/// The statistics of `normalize,mean=auto`, such as those of a checkpoint.
struct GivenStatistics {
  std::optional<ChannelStatistics> values = {};  ///< nullopt = they are measured
  std::string origin = "measured";               ///< shown in the log
};

/// Like the other `open`, with statistics.
Splits open(const Section& data, const std::vector<Source>& sources, const OpenOptions& options,
            const GivenStatistics& statistics);

/// Whether the source provides images that run through a pipeline. One process per host then lists and checks them for
/// the others, which open the data afterwards.
/// @throws ConfigError  the name of the source is unknown
bool opens_images(const Section& data, const std::vector<Source>& sources);

/// The statistics that `normalize,mean=auto` uses for a data set; nullopt = it does not need any.
std::optional<ChannelStatistics> statistics_of(const Dataset& dataset);

/// The lines that make the samples of a data set from images, and other keys that change their pixels
/// ("data.decode=fast"). Empty for other data sets.
std::vector<std::string> transform_of(const Dataset& dataset);

/// Like open_images; nullopt = the samples of the source are no images.
std::optional<ImageSplits> find_images(const Section& data, const std::vector<Source>& sources,
                                       const UsedSplits& used = {});

/// Divides a source with one part, and leaves out the images of data.exclude.
ImageSplits with_splits(ImageSplits splits, const Section& data);

/// The keys of image_keys() that change the samples and are not at their defaults, without "data.".
std::vector<std::string> set_image_keys(const Section& data);

/// Adds the pipelines of section `data` to stores of images.
/// @param normalize   Source::normalize
/// @param statistics  for `normalize,mean=auto`
Splits with_pipelines(const ImageSplits& splits, const Section& data, const OpenOptions& options,
                      const std::string& normalize, const GivenStatistics& statistics = {});

/// Checks images as data.check states. The caller is one process per host.
/// @throws DataError  an image cannot be read, and data.on_error is not `replace`
void check_images(const Splits& splits, const Section& data);

}  // namespace lockstep::data
