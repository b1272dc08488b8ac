// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

// Texts of the keys of data.name = fields that name parts of arrays.
namespace lockstep::data {

/// One position of an axis, as in `z[level=500]` or `z[level#1]`.
struct AxisChoice {
  std::string axis;       ///< its name in the file, or its letter in data.layout
  bool is_index = false;  ///< `value` is an index instead of a coordinate
  std::string value;
};

/// One entry of data.variables.
struct VariableChoice {
  std::string path;                        ///< "density"; a part `*` stands for every group of the file
  std::vector<std::string> channels = {};  ///< names or indices on the channel axis; empty = all
  std::vector<AxisChoice> fixed = {};

  /// The entry as it is written, for messages.
  std::string text() const;
};

/// @param cited  start of messages, see Section::cite
/// @throws ConfigError  a bracket is not closed, or a part is empty
std::vector<VariableChoice> parse_variables(const std::string& text, const std::string& cited);

/// data.layout: the letters of every variable, and those of single ones.
struct LayoutChoice {
  std::string common = {};                              ///< "" = by names
  std::map<std::string, std::string> by_variable = {};  ///< letters by path

  /// "" = by names.
  const std::string& of(const std::string& variable) const;
};

/// Reads "ntxy", or "density:ntxy,velocity:ntxyc".
/// @throws ConfigError  neither
LayoutChoice parse_layouts(const std::string& text, const std::string& cited);

/// The part of an axis of space that samples contain.
struct SpacePart {
  std::int64_t begin = 0;
  std::int64_t end = -1;  ///< the position after the last one; -1 = the end of the axis
  std::int64_t step = 1;
  std::string cited = {};  ///< start of messages: the key that names the axis
};

/// Reads data.crop, "x:0-64,y:8-40" (half-open), and data.subsample, "x:2,y:2", by the name of the axis.
/// @throws ConfigError  malformed, or an empty part
std::map<std::string, SpacePart> parse_space(const std::string& crop, const std::string& crop_cited,
                                             const std::string& subsample, const std::string& subsample_cited);

/// Reads ranges of numbers, "0-89,95": sorted and each once.
/// @throws ConfigError  malformed
std::vector<std::int64_t> parse_ranges(const std::string& text, const std::string& cited);

}  // namespace lockstep::data
