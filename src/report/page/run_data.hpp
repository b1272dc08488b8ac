// SPDX-License-Identifier: BSD-3-Clause
// The data in the folder of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plot/line_chart.hpp"
#include "report/files/artifacts.hpp"

namespace lockstep::report {

/// The texts of a table, row by row.
using PageRows = std::vector<std::vector<std::string>>;

struct Setting {
  std::string name;
  std::string value;
  std::string origin;
};

struct PageData {
  std::string name;                  ///< the folder's own
  std::vector<plot::Series> curves;  ///< curves by key of metrics.jsonl, over the steps; in the order of first mention
  /// Recoveries from failures: the step from which the run continued, the failure, how, seconds until the next step was
  /// done, steps that were done again.
  PageRows recoveries;
  PageRows status;                     ///< rows from STATUS.json and failure.json
  PageRows environment;                ///< rows from env.json
  std::vector<Setting> configuration;  ///< settings from config.resolved.json
  std::string command;                 ///< command line from argv.txt
  std::vector<std::string> replaced;   ///< samples that could not be read, of bad_samples.txt
  std::optional<StepTimes> step_times;
  Artifacts artifacts;

  const plot::Series* curve(const std::string& key) const;  ///< null where there is none
};

/// @throws ConfigError  the folder does not exist, or no metrics.jsonl in it
/// @throws DataError    metrics.jsonl has a damaged line or no metrics. A last line without an end is skipped: a run
///                      may be about to write it
PageData read_run(const std::string& folder);

}  // namespace lockstep::report
