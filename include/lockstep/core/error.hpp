// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace lockstep {

/// What `trainer` returns, the same from every rank. README.md lists them for users.
enum class ExitCode : int {
  done = 0,
  configuration = 2,
  data = 3,
  checkpoint = 4,
  communication = 5,
  numeric = 6,
  internal = 70,
  stopped = 75,
  interrupted = 130,  ///< by a second SIGINT, from that rank at once
};

/// The root of everything Lockstep throws on purpose: one sentence that says what, where and what to do.
///
/// An error is *agreed* when every rank throws the same one (see mpi::Communicator::all_or_throw): the job then ends by
/// MPI_Finalize and the same exit code everywhere. Any other error ends it by MPI_Abort. An error that *another rank*
/// threw, and told this one of (see mpi::Collectives::give_up), is reported by that rank alone.
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

/// A setting or an environment that the user can correct. Exit code 2.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ExitCode::configuration, message) {}
};

/// Data that is missing, unreadable or not what its header says. Exit code 3.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message) : Error(ExitCode::data, message) {}
  /// @param path  file or directory at fault; the message begins with it
  DataError(const std::string& path, const std::string& message)
      : Error(ExitCode::data, path + ": " + message), path_(path) {}

  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

/// What is the matter with a checkpoint, in the classes of the program `ckpt`'s exit codes.
enum class CheckpointFault {
  damaged,       ///< torn, cut off, flipped or malformed
  io,            ///< the system refused a call
  missing,       ///< there is no such file, folder or array
  other_kind,    ///< a file of another kind
  incompatible,  ///< of another version, type or shape
  refused,       ///< not touched for safety: links, pipes, storage elsewhere
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

  /// The same error, of another class than `damaged`.
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

/// Throws the error class that belongs to `code`, already agreed: how ranks that learned of a failure
/// elsewhere throw the same error as the rank that saw it.
[[noreturn]] void throw_agreed(ExitCode code, const std::string& message);
/// The same for an error that another rank threw.
[[noreturn]] void throw_remote(ExitCode code, const std::string& message);

}  // namespace lockstep
