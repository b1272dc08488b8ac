// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <string>
#include <vector>

#include "config/invocation.hpp"
#include "core/keys/command.hpp"
#include "engine/session.hpp"

namespace lockstep::trainer {

/// The context that every command works on.
struct CommandJob {
  const mpi::Communicator& world;
  const std::vector<std::string>& arguments;  ///< arguments, including the program's name
  const engine::Registry& registry;
  KeySpecs keys;
  std::vector<CommandSpec> commands;
};

/// The table of commands; the first one is the default.
using TrainerCommand = CommandRow<ExitCode(const CommandJob& job, const config::Invocation& invocation)>;
const std::vector<TrainerCommand>& commands();

/// The keys of all parts of a registry and of all commands. Collective.
/// @throws ConfigError  see engine::check_registry; on every rank
KeySpecs trainer_keys(const mpi::Communicator& world, const engine::Registry& registry);

/// Reads the command line of the job.
/// @param base  see config::parse
/// @throws ConfigError  like config::parse
inline config::Invocation parse_arguments(const CommandJob& job, const std::vector<config::IniText>& base = {}) {
  return config::parse({job.arguments.begin() + 1, job.arguments.end()}, job.keys, job.commands, base);
}

/// Prints the result of a command on rank 0. Collective.
/// @throws DataError  standard output is full or closed; on every rank
inline void print_result(const mpi::Communicator& world, const std::string& text) {
  world.all_or_throw([&text] { log::result(text); });
}

// Collective; each throws Error or returns the agreed exit code.
ExitCode train(const CommandJob& job, const config::Invocation& invocation);
ExitCode evaluate(const CommandJob& job, const config::Invocation& invocation);
ExitCode predict(const CommandJob& job, const config::Invocation& invocation);
ExitCode export_model(const CommandJob& job, const config::Invocation& invocation);
ExitCode show_config(const CommandJob& job, const config::Invocation& invocation);
ExitCode find_lr(const CommandJob& job, const config::Invocation& invocation);
ExitCode show_schedule(const CommandJob& job, const config::Invocation& invocation);
ExitCode describe_data(const CommandJob& job, const config::Invocation& invocation);
ExitCode write_report(const CommandJob& job, const config::Invocation& invocation);
ExitCode compare_runs(const CommandJob& job, const config::Invocation& invocation);
ExitCode examine(const CommandJob& job, const config::Invocation& invocation);
ExitCode plan_job(const CommandJob& job, const config::Invocation& invocation);
ExitCode write_job(const CommandJob& job, const config::Invocation& invocation);
ExitCode print_completion(const CommandJob& job, const config::Invocation& invocation);

}  // namespace lockstep::trainer
