// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

namespace lockstep::trainer {

/// The numbers of a job script.
struct JobScript {
  int ranks = 1;
  int hosts = 1;
  int cpus = 1;                             ///< per rank
  double time_s = 86400;                    ///< time limit
  double save_s = 0;                        ///< time of a save; 0 = unknown
  double memory_bytes = 0;                  ///< per rank; 0 = the default of the site
  std::vector<std::string> arguments = {};  ///< arguments of trainer
};

/// A script for sbatch: that of tools/slurm/train.sbatch with these numbers and arguments.
std::string slurm_script(const JobScript& job);

/// `text` as one word of a shell.
std::string shell_word(const std::string& text);

}  // namespace lockstep::trainer
