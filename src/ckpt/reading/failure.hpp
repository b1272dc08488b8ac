// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::ckpt {

/// The exit codes of `ckpt`.
enum class Exit : int {
  ok = 0,
  differences = 1,  ///< only used by `diff`
  usage = 2,        ///< the command line, or a file of a kind that `ckpt` does not read
  io = 3,
  corrupt = 4,
  policy = 5,
  incompatible = 6,
  refused = 7,  ///< not done, for safety
  not_found = 8,
  internal = 70,
};

/// Ends the program with one sentence.
class Failure : public std::runtime_error {
 public:
  Failure(Exit code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Exit code() const noexcept { return code_; }

 private:
  Exit code_;
};

/// The command line is wrong.
inline Failure usage_error(const std::string& message) { return {Exit::usage, message}; }

/// The exit code that belongs to an error of ours; `internal` for any other.
Exit exit_code_of(const std::exception& error);

}  // namespace lockstep::ckpt
