// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "arrays/time_axis.hpp"
#include "data/fields/field_series.hpp"
#include "data/fields/field_windows.hpp"

namespace lockstep::data {

/// A variable without time in a file of its own, from data.static.
struct StaticChoice {
  std::string file;
  VariableChoice variable;
};

/// The keys of data.name = fields.
struct FieldSettings {
  std::vector<VariableChoice> inputs;   ///< data.variables and data.forcing; empty = those that are found
  std::vector<VariableChoice> targets;  ///< empty = data.variables
  std::size_t forcings = 0;             ///< the last ones of `inputs`, which are no targets
  std::vector<StaticChoice> statics;
  LayoutChoice layout;
  std::vector<std::string> channel_names;  ///< those of data.channels_from
  WindowRule window;                       ///< `lead` is -1 for auto; `steps_out` is -1 for the rest
  bool is_disjoint = false;                ///< the next window begins after the last step of the one before
  bool is_joined = false;
  bool is_ordered_by_time = false;
  arrays::Cadence cadence;
  std::map<std::string, SpacePart> parts;
  std::vector<std::int64_t> trajectories;  ///< those of the training part; empty = all
  double val_fraction = 0;
  GapRule gaps = GapRule::error;
  bool has_gap_channel = false;
  NormalizationRule normalization;
  std::string position;             ///< none, grid, latitude or coordinates
  std::vector<std::string> cycles;  ///< year, day
  std::int64_t classes = 0;         ///< number of classes of class maps; 0 = the targets are numbers
  std::int64_t max_sample_bytes = 0;
  std::size_t chunk_cache_bytes = 0;
  std::size_t open_files = 64;
  std::string layout_cited, steps_in_cited;  ///< starts of messages

  static KeySpecs keys();
  /// @throws ConfigError  a value is malformed, or values contradict each other
  static FieldSettings from(const Section& data);
};

}  // namespace lockstep::data
