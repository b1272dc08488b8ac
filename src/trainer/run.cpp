// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <string_view>
#include <unistd.h>

#include "config/help.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/system/memory.hpp"
#include "core/system/process.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "mpi/process/launch.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/doctor/greeting.hpp"
#include "trainer/heal/recovery.hpp"
#include "trainer/heal/supervisor.hpp"
#include "trainer/run_environment.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kPair = 5 * kSecond;
std::atomic<std::int64_t> interrupted_at{-kPair};  // time on the monotonic clock, in ns

// Only what is safe in a signal handler is called below.

extern "C" void on_stop_signal(int) {
  engine::request_stop();
  log::hurry();
}

extern "C" void on_interrupt(int signal) {
  on_stop_signal(signal);
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t moment = now.tv_sec * kSecond + now.tv_nsec;
  if (moment - interrupted_at.exchange(moment) >= kPair) return;
  constexpr std::string_view kText =
      "interrupted twice: exiting without saving; the last checkpoint is the latest state\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(static_cast<int>(ExitCode::interrupted));
}

/// A signal that was ignored when the program started stays ignored, as under nohup.
void handle_unless_ignored(int signal, void (*handler)(int)) {
  if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
}

/// USR2, TERM, XCPU and HUP request a stop; however often they come, it is one request. INT asks, too; a second one
/// within 5 s leaves at once with code 130. INT and HUP stay ignored where they were ignored when the program started,
/// as a shell does for its jobs in the background and nohup does for its command. PIPE is ignored, see
/// guard_standard_streams. CONT, which launchers send before TERM, does nothing. USR1 belongs to others (NCCL).
void install_signal_handlers() {
  guard_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error of that write, not the end of the process
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) std::signal(signal, on_stop_signal);
  handle_unless_ignored(SIGINT, on_interrupt);
  handle_unless_ignored(SIGHUP, on_stop_signal);
}

/// The handler for a command that cannot be continued: any of these signals ends it as it ends most programs.
void leave_on_signals() {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP}) handle_unless_ignored(signal, SIG_DFL);
}

/// Whether the command reads the configuration of a run before that of the command line. It then settles the keys.
bool reads_stored_config(const config::Invocation& invocation) {
  return invocation.options.contains("from") || invocation.command == "export";
}

ExitCode dispatch(const CommandJob& job) {
  config::Invocation invocation = engine::agreed(job.world, [&] { return parse_arguments(job); });
  const std::string normalize = expand_model_from(job, invocation.config);
  job.world.all_or_throw([&] {
    if (reads_stored_config(invocation)) return;
    expand_augmentation(invocation.config, normalize);
    derive_val_transform(invocation.config, job.registry.transforms);
    invocation.config.require_read();
  });
  if (invocation.command != "train") leave_on_signals();
  if (invocation.wants_version) {
    print_result(job.world, "lockstep " + version() + "\n" + version_lines());
    return ExitCode::done;
  }
  if (invocation.wants_help) {
    job.world.all_or_throw([&] {
      const std::string& name = invocation.help_section;
      log::result(name.empty()         ? config::overview_help(job.keys, job.commands)
                  : name == "commands" ? config::command_help(job.commands)
                                       : config::section_help(name, job.keys));
    });
    return ExitCode::done;
  }
  return find_row(commands(), invocation.command, "command line").run(job, invocation);
}

/// @throws ConfigError  the arguments are wrong, or each rank of a job would start a job of its own
ExitCode supervise_job(const std::vector<std::string>& arguments) {
  if (mpi::launcher() != "none") {
    throw ConfigError("heal starts the launcher: use trainer heal mpirun ..., not mpirun ... trainer heal");
  }
  return static_cast<ExitCode>(supervise(parse_heal(arguments)));
}

/// Whether the command is `heal`, which starts a launcher and uses no MPI itself.
bool is_supervisor(int argc, char** argv) {
  constexpr std::string_view kName = "heal";
  if (argc < 2 || argv[1] != kName) return false;
  return argc < 3 || (std::string_view(argv[2]) != "--help" && std::string_view(argv[2]) != "-h");
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
  keep_freed_memory();
  install_signal_handlers();
  ExitCode code = ExitCode::done;
  try {
    require_usable_level();
    if (is_supervisor(argc, argv)) leave(supervise_job({argv + 2, argv + argc}));
    mpi::Environment environment(&argc, &argv);
    const std::vector<std::string> arguments(argv, argv + argc);
    if (argc > 1 && arguments[1] == "doctor") require_answers(std::ranges::count(arguments, "--json") > 0);
    const mpi::Communicator world = mpi::Communicator::world();
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
    // All ranks know the code: any of them that is left can tell it.
    if (const auto result = ResultFile::of_environment()) result->put_code(code);
    environment.finish();
    leave(code);
  } catch (const Error& error) {  // thrown before MPI came up
    log::error(error.what());
    leave(error.exit_code());
  }
}

}  // namespace lockstep::trainer
