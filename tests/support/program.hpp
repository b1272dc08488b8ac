// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "support/sampling.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::testing {

/// The output that a program printed and returned.
struct ProgramResult {
  int exit_code = 0;            ///< 128 + signal when a signal ended it
  std::string output;           ///< stdout, followed by stderr
  std::vector<int> rank_codes;  ///< exit codes of the processes of run_ranks, by rank; -1 where one was killed
};

/// Runs a shell command to its end, or kills its process group after `limit_s` (exit code 124).
ProgramResult run_shell(const std::string& command, double limit_s = 120);

/// `mpirun -np N build/trainer <arguments>` with the flags of this build.
/// @param environment  "NAME=value" words put before mpirun
ProgramResult run_ranks(int ranks, const std::string& arguments, double limit_s = 120,
                        const std::string& environment = "");

/// The trainer's path, quoted for a shell.
std::string trainer_program();
/// The path of `ckpt`, quoted for a shell.
std::string ckpt_program();
/// The words `mpirun <flags> -np N`.
std::string mpirun_command(int ranks);

/// The lines of a program's output that report an error.
std::vector<std::string> error_lines(const std::string& output);

std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

}  // namespace lockstep::testing
