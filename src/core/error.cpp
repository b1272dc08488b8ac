// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

namespace lockstep {

namespace {

template <class E>
[[noreturn]] void throw_as(E error) {
  error.set_agreed();
  throw error;
}

}  // namespace

void throw_agreed(ExitCode code, const std::string& message) {
  switch (code) {
    case ExitCode::configuration:
      throw_as(ConfigError(message));
    case ExitCode::data:
      throw_as(DataError(message));
    case ExitCode::checkpoint:
      throw_as(CheckpointError(message));
    case ExitCode::communication:
      throw_as(CommError(message));
    case ExitCode::numeric:
      throw_as(NumericError(message));
    case ExitCode::done:
    case ExitCode::internal:
    case ExitCode::stopped:
    case ExitCode::interrupted:
      break;
  }
  throw_as(Error(code, message));
}

}  // namespace lockstep
