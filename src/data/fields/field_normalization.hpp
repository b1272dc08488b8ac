// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace lockstep::data {

/// Population moments and limits of a channel. NaN = unknown.
struct ChannelNumbers {
  double count = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();
  double std = std::numeric_limits<double>::quiet_NaN();
  double rms = std::numeric_limits<double>::quiet_NaN();
  double min = std::numeric_limits<double>::quiet_NaN();
  double max = std::numeric_limits<double>::quiet_NaN();
};

/// The numbers of a channel of the training data.
struct FieldNumbers {
  std::string channel;
  ChannelNumbers values = {};
  ChannelNumbers differences = {};  ///< those of x[t + lead] - x[t] in a series; count 0 = none
};

/// How values become numbers of about 1.
enum class Normalization {
  none,
  zscore,  ///< (x - mean) / std
  rms,     ///< x / rms
  minmax   ///< (x - min) / (max - min)
};

/// The result of the model.
enum class FieldPrediction {
  values,
  differences,  ///< those to the newest step of the input
  steps         ///< those to the step before
};

/// The keys about normalization.
struct NormalizationRule {
  Normalization kind = Normalization::none;
  FieldPrediction prediction = FieldPrediction::values;
  double floor = -1;                                ///< smallest deviation; negative = auto
  bool weighs_area = false;                         ///< weights are areas of rows of latitudes
  std::vector<std::vector<std::string>> vectors{};  ///< channels that share a deviation
  std::map<std::int64_t, double> rates{};           ///< rates of data.exponential by input channel
  std::string statistics = "compute";               ///< or the files that state them
  std::string cache;                                ///< folder that keeps the numbers; "" = none
  std::string statistics_cited, vector_cited, area_cited, exponential_cited;  ///< starts of messages
};

/// (x - shift) / scale.
struct Affine {
  double shift = 0;
  double scale = 1;
};

/// The map that a rule makes of the numbers of a channel. A channel that is constant gets the scale 1.
/// @param has_floor_of_well  the numbers have the smallest deviation of The Well, 1e-4
Affine affine_of(const ChannelNumbers& numbers, const NormalizationRule& rule, bool has_floor_of_well);

/// Whether a channel is constant, so that its deviation is rounding: at most 1e-6 of its root mean square.
bool is_constant(const ChannelNumbers& numbers);

/// Gives the channels of each vector the root of their mean variance.
/// @throws ConfigError  a channel does not exist
void share_deviations(std::vector<FieldNumbers>& numbers, const NormalizationRule& rule);

/// Statistics that files state.
class StatedNumbers {
 public:
  /// Reads a statistics.json of a run, a folder with Makani's global_means.npy and global_stds.npy,
  /// "MEANS.npy,STDS.npy", a stats.yaml of The Well, or "FILE:mean=PATH,std=PATH,rms=PATH,min=PATH,max=PATH" of HDF5
  /// and netCDF-4.
  /// @param lead   stored steps of the differences, by which Makani names its files; those of a statistics.json count
  ///               only if they are over as many steps
  /// @param cited  start of messages
  /// @throws DataError, ConfigError  a file cannot be read, or has numbers that are not finite; names the file
  static StatedNumbers from(const std::string& text, std::int64_t lead, const std::string& cited);

  bool names(const std::string& channel) const { return by_name_.contains(channel); }
  bool has_floor_of_well() const { return is_of_the_well_; }
  /// Whether channels are identified by their names, so that targets that are no inputs have numbers, too.
  bool has_names() const { return !by_name_.empty(); }
  /// The numbers of a channel.
  /// @param position   its number among the channels of the files of the data
  /// @param all        number of those
  /// @param is_target  it is a target that is no input
  /// @throws DataError  the statistics have another number of channels, or none of this name
  FieldNumbers of(const std::string& channel, std::int64_t position, std::int64_t all, bool is_target = false) const;

 private:
  std::string path_;  // the file that states the means, for messages
  bool is_of_the_well_ = false;
  std::vector<FieldNumbers> by_position_;
  std::map<std::string, FieldNumbers> by_name_;
  std::map<std::string, FieldNumbers> targets_by_name_;  // those that differ from inputs of the same name
};

}  // namespace lockstep::data
