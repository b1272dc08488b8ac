// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ckpt/failure.hpp"
#include "ckpt/options.hpp"

namespace lockstep::ckpt {

/// A row of the program's table.
struct Command {
  std::string name;
  std::string words;  ///< "FILE NAME" in help
  std::size_t min;    ///< of them that must be given
  std::size_t max;
  std::string help;
  std::vector<OptionSpec> options;  ///< besides the common ones
  Exit (*run)(const Request& request);
};

// Each prints its answer; throws Failure or Error where there is none.
Exit info(const Request& request);
Exit list(const Request& request);
Exit tree(const Request& request);
Exit show(const Request& request);
Exit stat(const Request& request);
Exit hist(const Request& request);
Exit verify(const Request& request);
Exit diff(const Request& request);
Exit hash(const Request& request);
Exit plot(const Request& request);
Exit convert(const Request& request);
Exit doctor(const Request& request);
Exit prune(const Request& request);
Exit lineage(const Request& request);
Exit average(const Request& request);
Exit cast(const Request& request);
Exit edit(const Request& request);

/// The program's table.
const std::vector<Command>& commands();

/// Finds the command and runs it; says in one sentence on the standard error what went wrong.
Exit run_here(const std::vector<std::string>& words);

/// The program: run_here() in a child process, since files may come from anywhere. A library that crashes on one costs
/// an exit code, not more.
int run(const std::vector<std::string>& words);

}  // namespace lockstep::ckpt
