// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <malloc.h>
#include <unistd.h>

#include "config/help.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/system/out_of_memory.hpp"
#include "core/system/version.hpp"
#include "core/text/message.hpp"
#include "core/text/table.hpp"
#include "engine/check_registry.hpp"
#include "engine/settings/agreed.hpp"
#include "mpi/process/process_memory.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/preset.hpp"
#include "trainer/commands/print_result.hpp"
#include "trainer/model_from.hpp"
#include "trainer/run_environment.hpp"
#include "trainer/signals.hpp"

namespace lockstep::trainer {

namespace {

/// Tensors come from a heap that keeps its memory, not from a fresh mapping at every step.
void tune_allocator() {
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 2'000'000'000);
  mallopt(M_TOP_PAD, 64 << 20);
  mallopt(M_ARENA_MAX, 2);
}

KeySpecs trainer_keys(const mpi::Communicator& world, const engine::Registry& registry) {
  KeySpecs of_commands;
  for (const TrainerCommand& command : commands()) {
    of_commands.insert(of_commands.end(), command.keys.begin(), command.keys.end());
  }
  if (&registry != &engine::builtin_registry()) {
    world.all_or_throw([&] { engine::check_registry(registry, of_commands); });
  }
  KeySpecs keys = engine::all_keys(registry);
  keys.insert(keys.end(), of_commands.begin(), of_commands.end());
  return keys;
}

ExitCode dispatch(const CommandJob& job) {
  config::Invocation invocation = engine::agreed(job.world, [&] { return parse_arguments(job); });
  const std::string normalise = expand_model_from(job, invocation.config);
  job.world.all_or_throw([&] { expand_preset(invocation.config, normalise); });
  if (invocation.command != "train") leave_on_signals();
  if (invocation.wants_version) {
    print_result(job.world, "lockstep " + version() + "\n" + version_lines());
    return ExitCode::done;
  }
  if (invocation.wants_help) {
    job.world.all_or_throw([&] {
      log::result(invocation.help_section.empty() ? config::overview_help(job.keys, job.commands)
                                                  : config::section_help(invocation.help_section, job.keys));
    });
    return ExitCode::done;
  }
  return find_row(commands(), invocation.command, "command line").run(job, invocation);
}

[[noreturn]] void leave(ExitCode code) {
  log::flush();
  std::fflush(nullptr);
  _exit(static_cast<int>(code));  // LibTorch's destructors would take longer than a short run's training
}

/// A failure that this rank alone knows of ends the job at once; one that all ranks agreed on ends in good order. What
/// another rank threw is left to that rank.
ExitCode report_failure(const std::exception& failure, const mpi::Communicator& world) {
  const auto* const error = dynamic_cast<const Error*>(&failure);
  const ExitCode code = error != nullptr ? error->exit_code() : ExitCode::internal;
  const bool is_everywhere = world.size() == 1 || (error != nullptr && error->is_agreed());
  const bool is_remote = error != nullptr && error->is_remote();
  if (!is_remote) is_everywhere ? log::agreed_error(message_of(failure)) : log::error(message_of(failure));
  log::flush();
  if (!is_everywhere) mpi::Environment::abort(code, is_remote);
  return code;
}

}  // namespace

void run(int argc, char** argv, const engine::Registry& registry) {
  tune_allocator();
  install_signal_handlers();
  ExitCode code = ExitCode::done;
  try {
    require_usable_level();
    mpi::Environment environment(&argc, &argv);
    const mpi::Communicator world = mpi::Communicator::world();
    const std::vector<std::string> arguments(argv, argv + argc);
    log::configure({.rank = world.rank(), .world_size = world.size()});
    if (const std::string remark = mpi::process_memory_remark(); world.size() > 1 && !remark.empty()) {
      log::warning(remark);
    }
    try {
      code = dispatch({world, arguments, registry, trainer_keys(world, registry), specs_of(commands())});
    } catch (const Error& failure) {
      code = report_failure(failure, world);
    } catch (const std::exception& failure) {
      code = is_out_of_memory(failure) ? report_failure(out_of_memory_error(failure), world)
                                       : report_failure(failure, world);
    }
    environment.finish();
    leave(code);
  } catch (const Error& error) {  // thrown before MPI came up
    log::error(error.what());
    leave(error.exit_code());
  }
}

}  // namespace lockstep::trainer
