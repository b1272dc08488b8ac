// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

namespace lockstep {

namespace {

/// Throws the class that belongs to `code`, once `mark` has seen the error.
template <class Mark>
[[noreturn]] void throw_marked(ExitCode code, const std::string& message, const Mark& mark) {
  const auto throw_as = [&mark](auto error) {
    mark(error);
    throw error;
  };
  switch (code) {
    case ExitCode::configuration:
      throw_as(ConfigError(message));
      break;
    case ExitCode::data:
      throw_as(DataError(message));
      break;
    case ExitCode::checkpoint:
      throw_as(CheckpointError(message));
      break;
    case ExitCode::communication:
      throw_as(CommError(message));
      break;
    case ExitCode::numeric:
      throw_as(NumericError(message));
      break;
    case ExitCode::done:
    case ExitCode::internal:
    case ExitCode::stopped:
    case ExitCode::interrupted:
      break;
  }
  Error error(code, message);
  mark(error);
  throw error;
}

}  // namespace

void throw_agreed(ExitCode code, const std::string& message) {
  throw_marked(code, message, [](Error& error) { error.set_agreed(); });
}

void throw_remote(ExitCode code, const std::string& message) {
  throw_marked(code, message, [](Error& error) { error.set_remote(); });
}

}  // namespace lockstep
