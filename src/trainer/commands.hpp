// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <string>
#include <vector>

#include "config/help.hpp"
#include "config/invocation.hpp"
#include "engine/setup/session.hpp"

namespace lockstep::trainer {

/// What every command works on.
struct Job {
  const mpi::Communicator& world;
  const std::vector<std::string>& arguments;  ///< with the program's name
  const engine::Registry& registry;
  KeySpecs keys;
};

// Collective; each throws Error or returns the agreed exit code.
ExitCode train(const Job& job, config::Invocation invocation);
ExitCode evaluate(const Job& job, const config::Invocation& invocation);
ExitCode predict(const Job& job, const config::Invocation& invocation);
ExitCode export_model(const Job& job, const config::Invocation& invocation);
ExitCode show_config(const Job& job, const config::Invocation& invocation);
ExitCode find_lr(const Job& job, const config::Invocation& invocation);
ExitCode show_schedule(const Job& job, const config::Invocation& invocation);
ExitCode describe_data(const Job& job, const config::Invocation& invocation);
ExitCode write_report(const Job& job, const config::Invocation& invocation);
ExitCode compare_runs(const Job& job, const config::Invocation& invocation);

/// One line of help for every section.
const config::SectionHelp& section_help();

}  // namespace lockstep::trainer
