// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/ckpt/ckpt.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/reading/commands.hpp"
#include "ckpt/reading/text.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/system/process.hpp"
#include "core/text/table.hpp"
#include "core/text/text.hpp"

namespace lockstep::ckpt {

namespace {

const char* const kExitCodes = R"(
Exit codes
  0  success
  1  diff: the files differ
  2  invalid command line
  3  a file cannot be read or written
  4  a file is damaged
  5  a checkpoint violates a rule, for example it contains NaN
  6  unsupported version, type or shape
  7  refused for safety, for example a link to another file
  8  file or array not found
)";

const char* const kEnvironment = R"(
Environment variables
  LOCKSTEP_CPU  Lowers the processor level: generic, avx2, avx512 or amx. `ckpt --version` prints the level in use
)";

std::string overview() {
  TextTable table({Align::left, Align::left, Align::left});
  for (const CkptCommand& command : commands())
    table.add({"  " + command.name, joined(command.words, " "), command.help});
  return "Usage: ckpt COMMAND FILE... [--option]...\n\nInspects and converts checkpoints. Existing "
         "files are never changed; only `prune --yes` deletes some.\n\nCommands (ckpt COMMAND --help prints the "
         "options)\n" +
         table.text() +
         "\nFILE is a checkpoint (folder or state.h5), a folder of checkpoints or of a run (its latest checkpoint is "
         "used),\nor a file of another program. FILE/NAME is an array in it.\n" +
         kEnvironment + kExitCodes;
}

std::vector<CommandOption> options_of(const CkptCommand& command) {
  std::vector<CommandOption> options = command.options;
  options.insert(options.end(), common_options().begin(), common_options().end());
  return options;
}

std::string help_of(const CkptCommand& command) {
  TextTable table({Align::left, Align::left});
  for (const CommandOption& option : options_of(command)) {
    table.add({"  --" + option.name + (option.value.empty() ? "" : " " + option.value), option.help});
  }
  return "Usage: ckpt " + command.name + " " + joined(command.words, " ") + " [--option]...\n\n" + command.help +
         "\n\nOptions\n" + table.text() + kExitCodes;
}

const CkptCommand& command_of(const std::string& name) {
  const auto found = std::ranges::find(commands(), name, &CkptCommand::name);
  if (found != commands().end()) return *found;
  throw usage_error(unknown_command(escaped(name), names_of(commands())));
}

Exit dispatch(const std::vector<std::string>& words, const std::vector<families::FamilyRow>& families) {
  require_usable_level();
  if (words.empty()) throw usage_error("the command is missing; see ckpt --help");
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print(overview());
    return Exit::ok;
  }
  if (words[0] == "--version") {
    print("ckpt " + version() + "\nprocessor_level " + std::string(name_of(processor_level())) + "\n");
    return Exit::ok;
  }
  const CkptCommand& command = command_of(words[0]);
  Request request = parse({words.begin() + 1, words.end()}, options_of(command));
  request.known_families = &families;
  if (request.has("help")) {
    print(help_of(command));
    return Exit::ok;
  }
  if (request.paths.size() < command.min_words() || request.paths.size() > command.max_words()) {
    throw usage_error("usage: ckpt " + command.name + " " + joined(command.words, " "));
  }
  return command.run(request);
}

}  // namespace

Exit run_here(const std::vector<std::string>& words, const std::vector<families::FamilyRow>& families) {
  try {
    return dispatch(words, families);
  } catch (const std::exception& error) {
    const std::string name = words.empty() ? "" : " " + escaped(words[0]);
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    const bool is_safe = dynamic_cast<const Failure*>(&error) != nullptr;  // its text was escaped where it was made
    const std::string message = is_memory ? "not enough memory" : is_safe ? error.what() : escaped(error.what());
    fmt::print(stderr, "ckpt{}: {}\n", exit_code_of(error) == Exit::usage ? "" : name, message);
    return exit_code_of(error);
  }
}

int run(int argc, char** argv, const std::vector<families::FamilyRow>& families) {
  guard_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error like any other
  const pid_t child = ::fork();
  if (child <= 0) {
    const int code = static_cast<int>(run_here({argv + 1, argv + argc}, families));
    if (child < 0) return code;  // no process to spare: then without the shield
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal = WTERMSIG(status);
  if (signal == SIGINT || signal == SIGTERM) return 128 + signal;
  fmt::print(stderr, "ckpt: reading the file crashed ({}): it is damaged or malicious\n", ::strsignal(signal));
  return static_cast<int>(Exit::corrupt);
}

}  // namespace lockstep::ckpt
