// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

namespace lockstep {

namespace {

/// Throws the class that belongs to `code`.
/// @param mark  called for the error
[[noreturn]] void throw_marked(ExitCode code, const std::string& message, void (Error::*mark)() noexcept) {
  const auto throw_as = [mark](auto error) {
    (error.*mark)();
    throw error;
  };
  if (code == ExitCode::configuration) throw_as(ConfigError(message));
  if (code == ExitCode::data) throw_as(DataError(message));
  if (code == ExitCode::checkpoint) throw_as(CheckpointError(message));
  if (code == ExitCode::communication) throw_as(CommError(message));
  if (code == ExitCode::numeric) throw_as(NumericError(message));
  Error error(code, message);
  (error.*mark)();
  throw error;
}

}  // namespace

void throw_agreed(ExitCode code, const std::string& message) { throw_marked(code, message, &Error::set_agreed); }

void throw_remote(ExitCode code, const std::string& message) { throw_marked(code, message, &Error::set_remote); }

}  // namespace lockstep
