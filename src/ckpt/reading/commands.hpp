// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ckpt/reading/failure.hpp"
#include "ckpt/reading/options.hpp"
#include "core/keys/command.hpp"

namespace lockstep::ckpt {

/// Its options are those besides the common ones.
using CkptCommand = CommandRow<Exit(const Request& request)>;

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
Exit convert(const Request& request);
Exit doctor(const Request& request);
Exit prune(const Request& request);
Exit lineage(const Request& request);
Exit average(const Request& request);
Exit cast(const Request& request);
Exit edit(const Request& request);

/// The program's table.
const std::vector<CkptCommand>& commands();

/// Finds the command and runs it; says in one sentence on the standard error what went wrong.
Exit run_here(const std::vector<std::string>& words,
              const std::vector<families::FamilyRow>& families = families::builtin_families());

}  // namespace lockstep::ckpt
