// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// Exit codes of `trainer`, the same on every rank; see docs/errors.md.
enum class ExitCode : int {
  done = 0,
  configuration = 2,
  data = 3,
  checkpoint = 4,
  communication = 5,
  numeric = 6,
  internal = 70,
  stopped = 75,
  interrupted = 130,  ///< a second SIGINT: the rank exits at once
};

/// The base class of all errors of Lockstep. The message is one sentence that states what is wrong, where, and what to
/// do.
///
/// An error is *agreed* when every rank throws the same one (see mpi::Communicator::all_or_throw): the job then ends
/// with MPI_Finalize and the same exit code on every rank. Any other error ends the job with MPI_Abort. An error of
/// *another rank*, received through mpi::Collectives::give_up, is reported by that rank only.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  ExitCode exit_code() const noexcept { return code_; }
  bool is_agreed() const noexcept { return is_agreed_; }
  void set_agreed() noexcept { is_agreed_ = true; }
  bool is_remote() const noexcept { return is_remote_; }
  void set_remote() noexcept { is_remote_ = true; }

 private:
  ExitCode code_;
  bool is_agreed_ = false;
  bool is_remote_ = false;
};

/// An error in the settings or the environment that the user can correct. Exit code 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ExitCode::configuration, message) {}
};

/// Data are missing, unreadable or different from what their header states. Exit code 3.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
  /// @param path  the file or directory; the message starts with it
  DataError(const std::string& path, const std::string& message)
      : Error(ExitCode::data, path + ": " + message), path_(path) {}

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// The kind of a checkpoint error. The exit codes of `ckpt` follow from it.
enum class CheckpointFault {
  damaged,       ///< incomplete, truncated, modified or malformed
  io,            ///< a system call failed
  missing,       ///< the file, folder or array does not exist
  other_kind,    ///< a file in another format
  incompatible,  ///< another version, type or shape
  refused,       ///< not opened for safety: links, pipes, external storage
};

/// A checkpoint that cannot be written, read or used. Exit code 4.
class CheckpointError : public Error {
 public:
  explicit CheckpointError(const std::string& message) : Error(ExitCode::checkpoint, message) {}
  CheckpointError(const std::string& path, const std::string& message)
      : Error(ExitCode::checkpoint, path + ": " + message), path_(path) {}
  /// @param object  path of the array or attribute inside the file
  CheckpointError(const std::string& path, const std::string& object, const std::string& message)
      : Error(ExitCode::checkpoint, path + ": " + object + ": " + message), path_(path), object_(object) {}

  /// The same error with another kind than `damaged`.
  CheckpointError as(CheckpointFault fault) && {
    fault_ = fault;
    return std::move(*this);
  }
  CheckpointFault fault() const noexcept { return fault_; }

  const std::string& path() const noexcept { return path_; }
  const std::string& object() const noexcept { return object_; }

 private:
  std::string path_;
  std::string object_;
  CheckpointFault fault_ = CheckpointFault::damaged;
};

/// MPI, shared memory or a peer failed. Exit code 5.
class CommError : public Error {
 public:
  explicit CommError(const std::string& message) : Error(ExitCode::communication, message) {}
};

/// A loss, gradient or parameter is not finite. Exit code 6.
class NumericError : public Error {
 public:
  explicit NumericError(const std::string& message) : Error(ExitCode::numeric, message) {}
};

/// Throws an error of the class of `code`, marked as agreed. Ranks that learn of a failure of another rank use it to
/// throw the same error.
[[noreturn]] void throw_agreed(ExitCode code, const std::string& message);
/// The same for an error of another rank (Error::is_remote).
[[noreturn]] void throw_remote(ExitCode code, const std::string& message);

}  // namespace lockstep
