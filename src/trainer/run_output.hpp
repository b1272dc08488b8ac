// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "config/config.hpp"
#include "engine/session.hpp"
#include "trainer/run_report.hpp"

namespace lockstep::trainer {

/// A file of one rank in the folder of a run, such as <folder>/logs/rank_00002.log.
std::string rank_file(const std::string& folder, int rank, const std::string& kind = "rank",
                      const std::string& ending = ".log");

/// Writes the configuration and the environment into the folder of a run, and links train.log to the log of rank 0.
void write_run_files(const std::string& folder, const config::Config& config, const std::string& environment);

/// Passes records, steps and tables of a training to its report, which outlives the training.
void report_to(RunReport& report, engine::TrainRequest& request);

}  // namespace lockstep::trainer
