// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

/// Messages of a run for users. All functions are thread-safe and not collective.
///
///     12:31:05 info r0/2 resumed from step 1200
///
/// Rank 0 writes to the console: information to stdout, warnings and errors to stderr. Every rank writes all of its
/// messages, with the date, to its own file. Numbers for plots are written by report::MetricsWriter instead.
namespace lockstep::log {

enum class Level { debug, info, warning, error };

struct LogOptions {
  int rank = 0;
  int world_size = 1;
  std::string file = {};   ///< log file of this rank, which is appended to; its folder is created; empty = none
  bool to_console = true;  ///< if false, no rank writes to the console
  Level console_level = Level::info;  ///< lowest level that the console shows; files contain all levels
};

/// Before the first call, messages are written to stderr. Can be called again, for example when the output folder is
/// known.
/// @throws ConfigError  the file cannot be opened
void configure(const LogOptions& options);

/// The run is about to end: from now on, lines that are in a file as well wait only briefly for a reader of standard
/// output. Safe in a signal handler.
void hurry() noexcept;

void debug(const std::string& message);
void info(const std::string& message);
void warning(const std::string& message);
/// An error of this rank only. Every rank writes it to the console.
void error(const std::string& message);
/// An error that every rank throws (Error::is_agreed). Rank 0 writes it to the console.
void agreed_error(const std::string& message);
/// A line without time and level on stdout, for tables and results. Also written to the file.
void plain(const std::string& message);
/// The same for the result of a command, which is worthless if it cannot be written.
/// @throws DataError  standard output is full or closed
void result(const std::string& message);
/// Flushes buffered lines. Warnings and errors are flushed at once.
void flush();

/// A line that the next message or status replaces (a progress bar); "" only erases. Does nothing unless stdout is a
/// terminal, this is rank 0, and the console shows information.
void status(const std::string& line);
/// Whether stdout is a terminal. Open MPI connects every rank to a pseudo-terminal; under mpirun, the stdout of mpirun
/// is examined.
bool stdout_is_terminal();

}  // namespace lockstep::log
