// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

// The words that a run and its supervisor exchange: the run tells where it stands, and is told after which failure it
// was started again.
namespace lockstep::trainer {

/// The time in seconds since 1970.
double seconds_since_1970();

/// A failure after which a run continues.
struct Recovery {
  std::string cause;               ///< "rank 1 has died"
  int rung = 2;                    ///< 1 = the other ranks continue in place; 2 = the ranks were started again
  double failed_at = 0;            ///< when the failure was seen, in seconds since 1970
  std::int64_t reached_step = 0;   ///< steps that were done
  std::int64_t resumed_step = -1;  ///< the step from which the failed attempt had begun; -1 = not known

  /// The one that the supervisor states in LOCKSTEP_RECOVERY.
  static std::optional<Recovery> of_environment();
  /// The value of LOCKSTEP_RECOVERY.
  std::string text() const;
};

/// The file that LOCKSTEP_RESULT names, of which every line is replaced in place: the folder of the run, the steps that
/// are done, and the exit code. mpirun does not always return the exit code of a job that has lost ranks.
class ResultFile {
 public:
  /// Null without a supervisor.
  static std::shared_ptr<ResultFile> of_environment();

  /// Opens an existing file. On other hosts there is none. Errors are passed over: the run does not depend on it.
  explicit ResultFile(const std::string& path);
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  ~ResultFile();

  void put_step(std::int64_t step);
  void put_code(ExitCode code);
  void put_folder(const std::string& folder);

 private:
  void put(std::size_t offset, const std::string& text) const;

  int file_ = -1;
};

/// The contents of that file.
struct ToldResult {
  std::optional<std::int64_t> step = {};
  std::optional<int> code = {};
  std::string folder = {};  ///< "" = not known yet
};

/// An unreadable file has no contents.
ToldResult read_result(const std::string& path);

}  // namespace lockstep::trainer
