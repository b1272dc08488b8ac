// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

// Facts about processes, from /proc. Nothing here waits for a process.
namespace lockstep {

/// A thread, and where it is.
struct ThreadFacts {
  pid_t id = 0;
  std::string name = {};
  char state = '?';                      ///< letter as that of ProcessFacts
  std::string kernel = {};               ///< function of the kernel in which it waits; "" = none, or not to be seen
  std::vector<std::string> frames = {};  ///< functions, the innermost first; empty = not known
};

struct ProcessFacts {
  /// The letter of the system: R runs, S sleeps, D waits for a disk, T or t stopped, Z or X gone; '?' = cannot be seen.
  char state = '?';
  double memory_mb = 0;     ///< resident memory
  int exit_status = 0;      ///< that of a process that is gone, as waitpid gives it, where the system shows it
  bool has_status = false;  ///< whether it does
};

bool is_gone(char state);
bool is_stopped(char state);
/// "is stopped", "waits for a disk" and so on; "" = nothing is known.
std::string state_text(char state);
/// "9 (KILL)".
std::string signal_text(int signal);

/// The facts in the text of /proc/PID/stat.
ProcessFacts parse_process_stat(const std::string& text);

/// @param root  folder that contains proc, for tests
ProcessFacts process_facts(pid_t pid, const std::string& root = "/");

/// The threads of a process, without their frames.
/// @param most  of them are looked at
std::vector<ThreadFacts> threads_of(pid_t pid, std::size_t most, const std::string& root = "/");

/// How often the control group of this process has killed a process because memory was lacking (oom_kill in
/// memory.events of version 2, memory.oom_control of version 1).
/// @param root  folder that contains proc and sys, for tests
/// @return      none = the system does not say
std::optional<std::int64_t> memory_kills(const std::string& root = "/");

/// The first 64 bits of the build id of this program, which other sources or options change; 0 = it has none.
std::uint64_t program_id();

}  // namespace lockstep
