// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <string>

#include "core/keys/cited.hpp"
#include "core/text/every.hpp"

namespace lockstep::engine {

struct LogSettings {
  Every every = 10;
  std::int64_t window = 1;         ///< steps over which losses are averaged; >= 1
  std::int64_t pictures = 16;      ///< maximum number of samples that are shown; 0 = none
  Cited<std::string> fields = {};  ///< names of the channels of fields that are shown; empty = the first ones
  std::int64_t field_samples = 2;  ///< maximum number of samples of fields that are shown; 0 = no fields
  bool times_sections = false;     ///< the sections of a step are measured

  /// All keys of section `log`; log.tensorboard, log.level and log.console_s are read by the program.
  static KeySpecs keys();
  static LogSettings from(const Section& log);
  bool operator==(const LogSettings&) const = default;
};

}  // namespace lockstep::engine
