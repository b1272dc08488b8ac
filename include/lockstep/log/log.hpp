// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

/// What a run says to people. Any thread may call any of these; nothing here is collective.
///
///     12:31:05 info r0/2 resumed from step 1200
///
/// Rank 0 speaks on the console: information on stdout, warnings and errors on stderr. Every rank keeps all of its
/// messages, with the date, in a file of its own. Numbers meant for plots go to a report::MetricsWriter instead.
namespace lockstep::log {

enum class Level { debug, info, warning, error };

struct Options {
  int rank = 0;
  int world_size = 1;
  std::string file = {};              ///< this rank's log file, appended to, its folder made if need be; empty = none
  bool to_console = true;             ///< if false, no rank writes to the console
  Level console_level = Level::info;  ///< lowest level that the console shows; files contain all levels
};

/// Before the first call messages go to stderr as they are. May be called again, as when the run's folder becomes
/// known.
/// @throws ConfigError  the file cannot be opened
void configure(const Options& options);

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
/// An error that this rank alone knows of: the console gets it from any rank.
void error(const std::string& message);
/// An error that every rank throws alike (Error::is_agreed): the console gets it from rank 0.
void agreed_error(const std::string& message);
/// A line for people at the terminal, on stdout without time and level: tables, the result of a run. Also goes to the
/// file.
void plain(const std::string& message);
/// Hands buffered lines to the system. Warnings and errors are handed over at once.
void flush();

/// A line that the next message or status replaces (a progress bar); "" only erases. Does nothing unless stdout is a
/// terminal, this is rank 0, and the console shows information.
void status(const std::string& line);
/// Whether a person sees stdout: Open MPI gives every rank a pseudo-terminal, so under mpirun its stdout counts.
bool stdout_is_terminal();

}  // namespace lockstep::log
