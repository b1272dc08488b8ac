// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::report {

/// Makes a run's folder, with those above it, and proves that files can be written there.
/// @throws ConfigError  with the reason
void make_run_folder(const std::string& path);

/// Makes a new folder `stem` in `parent`, or "stem-2", "stem-3" and so on if the names before it are taken.
/// @return its name
/// @throws ConfigError  with the reason
std::string make_new_folder(const std::string& parent, const std::string& stem);

/// Replaces a file as a whole: a reader sees the old text or the new, never a part.
/// @throws ConfigError  with the reason
void write_text(const std::string& path, std::string_view text);

/// A command line as a shell would take it, with a line end, for argv.txt.
std::string shell_line(const std::vector<std::string>& arguments);

enum class RunState { running, done, stopped, failed };

/// The content of STATUS.json, for scripts.
struct RunStatus {
  RunState state = RunState::running;
  std::int64_t step = 0;
  std::int64_t total_steps = 0;  ///< 0 = not known
  std::optional<double> eta_seconds = {};
  std::string last_error = {};        ///< "" while nothing went wrong
  std::optional<int> exit_code = {};  ///< once the run has ended
};

/// Replaces <folder>/STATUS.json.
void write_status(const std::string& folder, const RunStatus& status);

/// The text of a file, or nothing when the file does not exist.
/// @throws ConfigError  it is there and cannot be read
std::optional<std::string> read_text(const std::string& path);

/// The text up to its last line end: what is behind that was torn off by a crash.
std::string whole_lines(const std::string& text);

/// Replaces <folder>/failure.json, which states why a run ended early. The class is that of an error of Lockstep, such
/// as "DataError", "OutOfMemory" for exit code 7, and "InternalError" for what Lockstep did not throw on purpose.
void write_failure(const std::string& folder, const std::exception& error, int rank, std::int64_t step);

}  // namespace lockstep::report
