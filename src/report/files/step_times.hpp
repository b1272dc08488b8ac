// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plot/timeline_chart.hpp"

namespace lockstep::report {

/// The places where the time of a median step goes, for the page of a run.
struct StepTimes {
  struct TimedPart {
    std::string name;  ///< "compute", "wait", ...
    double milliseconds;
  };
  std::string sentence;                       ///< sentence: what bounds the step
  std::vector<std::vector<TimedPart>> ranks;  ///< the parts of each rank's step, by rank; the same names everywhere
  plot::TimelineChart timeline;               ///< timeline of the slowest rank
};

/// Replaces <folder>/ddp.json.
/// @throws ConfigError  with the reason
void write_step_times(const std::string& folder, const StepTimes& times);

/// The times that write_step_times wrote; none where the file does not exist.
/// @throws DataError  the file is damaged
std::optional<StepTimes> read_step_times(const std::string& folder);

}  // namespace lockstep::report
