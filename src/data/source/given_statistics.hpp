// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>
#include <lockstep/data/transform.hpp>

#include <optional>
#include <string>
#include <vector>

// The facts that runs keep about the images of their training: the statistics of `normalise,mean=auto`, and the
// transforms.
namespace lockstep::data {

/// The statistics of `normalise,mean=auto`, such as those of a checkpoint.
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

/// The statistics that `normalise,mean=auto` uses for a data set; nullopt = it does not need any.
std::optional<ChannelStatistics> statistics_of(const Dataset& dataset);

/// The lines that make the samples of a data set from images, and other keys that change their pixels
/// ("data.decode=fast"). Empty for other data sets.
std::vector<std::string> transform_of(const Dataset& dataset);

}  // namespace lockstep::data
