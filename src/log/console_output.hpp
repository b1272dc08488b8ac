// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

namespace lockstep::log {

/// Standard output, or another stream, for lines that are in a file as well. A pipe or terminal that nobody reads, such
/// as that of an mpirun that is about to end its ranks, does not block the caller for long: lines wait in memory, and
/// the ones that do not fit are dropped.
class ConsoleOutput {
 public:
  explicit ConsoleOutput(int stream);
  ConsoleOutput(const ConsoleOutput&) = delete;
  ConsoleOutput& operator=(const ConsoleOutput&) = delete;
  ~ConsoleOutput();

  /// Whether the stream is a pipe or a terminal, so that `write` can be used.
  bool is_open() const noexcept { return file_ >= 0; }
  /// Waits for a reader that has kept up until now. Does not throw.
  void write(std::string_view line);

  void flush();  ///< tries again to write lines that wait

  bool is_stalled() const noexcept { return !waiting_.empty(); }  ///< lines wait for a reader
  bool is_lost() const noexcept { return is_lost_; }              ///< there is no reader any more

  /// Lines wait 100 ms at most for a reader from now on. Safe in a signal handler.
  static void hurry() noexcept;

 private:
  void write_waiting(bool is_patient);

  int file_ = -1;  // a description of its own, because it does not block
  std::string waiting_;
  bool is_lost_ = false;
};

}  // namespace lockstep::log
