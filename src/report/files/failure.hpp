// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <exception>
#include <string>

namespace lockstep::report {

/// Why a run ended early.
struct RunFailure {
  std::string error_class;  ///< such as "DataError"; "InternalError" for what Lockstep did not throw on purpose
  std::string message;
  int exit_code = 0;
  int rank = 0;
  std::int64_t step = 0;
};

RunFailure failure_of(const std::exception& error, int rank, std::int64_t step);

/// Replaces <folder>/failure.json.
void write_failure(const std::string& folder, const RunFailure& failure);

}  // namespace lockstep::report
