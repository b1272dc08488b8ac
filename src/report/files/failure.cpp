// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/failure.hpp"

#include <lockstep/core/error.hpp>

#include "core/text/message.hpp"
#include "report/files/metrics.hpp"
#include "report/files/run_files.hpp"

namespace lockstep::report {

namespace {

std::string class_of(ExitCode code) {
  switch (code) {
    case ExitCode::configuration:
      return "ConfigError";
    case ExitCode::data:
      return "DataError";
    case ExitCode::checkpoint:
      return "CheckpointError";
    case ExitCode::communication:
      return "CommError";
    case ExitCode::numeric:
      return "NumericError";
    case ExitCode::done:
    case ExitCode::internal:
    case ExitCode::stopped:
    case ExitCode::interrupted:
      break;
  }
  return "InternalError";
}

}  // namespace

RunFailure failure_of(const std::exception& error, int rank, std::int64_t step) {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  const ExitCode code = ours != nullptr ? ours->exit_code() : ExitCode::internal;
  return {class_of(code), message_of(error), static_cast<int>(code), rank, step};
}

void write_failure(const std::string& folder, const RunFailure& failure) {
  const NamedValues fields = {{"class", failure.error_class},
                              {"message", failure.message},
                              {"exit_code", std::int64_t{failure.exit_code}},
                              {"rank", std::int64_t{failure.rank}},
                              {"step", failure.step}};
  write_text(folder + "/failure.json", to_json(fields, 2) + "\n");
}

}  // namespace lockstep::report
