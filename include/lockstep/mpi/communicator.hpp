// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace lockstep::mpi {

/// Throws CommError naming the call and MPI's own words when `code` is not MPI_SUCCESS.
void check(int code, const char* call, std::source_location at = std::source_location::current());

/// What the MPI library calls itself, in one line.
std::string library_version();

/// What started this program: "mpirun", "srun" or "none". Not collective.
std::string launcher();

/// MPI from MPI_Init_thread to MPI_Finalize, and the guard that no rank leaves the job alone.
///
/// The constructor sets what makes Open MPI start fast and yield when oversubscribed (without overriding the user's
/// OMPI_MCA_* variables), initializes with MPI_THREAD_MULTIPLE and makes MPI return its errors. From then on a rank
/// that exits, or throws past main or a thread, without having called `finish` takes the whole job down by MPI_Abort
/// (code 70, or an Error's own) instead of leaving its peers in a collective forever.
class Environment {
 public:
  /// Collective over the whole job.
  /// @throws ConfigError  MPI gives less than MPI_THREAD_MULTIPLE; or slurm started several tasks but MPI sees one
  ///                      (srun without --mpi=pmix)
  Environment(int* argc, char*** argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// Ends MPI in good order. Collective: every rank calls it, after all of them agreed to end.
  void finish();

  /// Ends the whole job at once with `code`: for a failure that this rank alone knows of.
  /// @param is_remote  another rank has failed with this code: it may end the job first
  [[noreturn]] static void abort(ExitCode code, bool is_remote = false) noexcept;
};

enum class Op { sum, min, max };

/// A group of ranks with a private line of communication (a duplicate of the communicator it was made from).
///
/// For control and small data; gradients go through Collectives. All members but rank, size, handle and world_ranks are
/// collective: every rank of the group calls them in the same order. Counts beyond 2^31 - 1 are sent in pieces.
/// Instantiated for float, double, std::int32_t, std::int64_t, std::uint8_t, std::uint64_t and std::byte (which has
/// no reductions).
/// @throws CommError  from every member, when MPI reports a failure
class Communicator {
 public:
  /// Duplicates `parent`. Collective over `parent`.
  explicit Communicator(MPI_Comm parent);
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();  ///< not collective

  static Communicator world() { return Communicator(MPI_COMM_WORLD); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_root() const noexcept { return rank_ == 0; }
  MPI_Comm handle() const noexcept { return comm_; }  ///< MPI_COMM_NULL once moved from

  void barrier() const;

  /// Reduces element by element, in place; every rank gets the result.
  template <class T>
  void all_reduce(std::span<T> values, Op op = Op::sum) const;
  template <class T>
  T all_reduce(T value, Op op = Op::sum) const {
    all_reduce(std::span<T>(&value, 1), op);
    return value;
  }

  template <class T>
  void broadcast(std::span<T> values, int root = 0) const;
  /// Equal contributions, in rank order.
  /// @param all  size() * mine.size() elements
  template <class T>
  void all_gather(std::span<const T> mine, std::span<T> all) const;

  /// Texts of any length (0 bytes to gigabytes), in rank order, on every rank.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// The same, on `root` only; empty elsewhere.
  std::vector<std::string> gather(const std::string& mine, int root = 0) const;
  /// The root's text, on every rank.
  std::string broadcast(const std::string& text, int root = 0) const;

  /// Whether every rank says yes.
  bool agree(bool yes) const;

  /// The rank of each member in MPI_COMM_WORLD. Not collective.
  std::vector<int> world_ranks() const;

  /// Runs `step` on every rank and makes its failure everybody's: when it throws anywhere, every rank throws the error
  /// of the lowest failing rank, of the same class and text, marked as agreed. A failure on some of several ranks is
  /// prefixed with "rank R: ". `step` itself must not use this communicator in a way that a failing rank would leave
  /// half done.
  void all_or_throw(const std::function<void()>& step) const;

  /// The ranks with the same `color`, ordered by `key` then rank.
  /// @throws std::logic_error  a negative color, before any peer knows
  Communicator split(int color, int key = 0) const;
  /// The ranks on this host (MPI_COMM_TYPE_SHARED).
  Communicator split_by_host() const;

 private:
  struct Adopt {};
  Communicator(Adopt, MPI_Comm comm);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace lockstep::mpi
