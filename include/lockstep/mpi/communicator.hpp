// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::mpi {

/// Throws CommError with the call, its place and the text of the MPI library if `code` is not MPI_SUCCESS. The default
/// arguments are the place of the caller; clang 14 has no std::source_location.
void check(int code, const char* call, const char* file = __builtin_FILE(), int line = __builtin_LINE());

/// The name and version of the MPI library, in one line.
std::string library_version();

/// The launcher of this program: "mpirun", "srun" or "none". Not collective.
std::string launcher();

/// The MPI environment from MPI_Init_thread to MPI_Finalize. It ensures that no rank leaves the job alone.
///
/// The constructor sets parameters of Open MPI for a fast start and for oversubscribed processors (without overriding
/// the user's OMPI_MCA_* variables), initializes MPI with MPI_THREAD_MULTIPLE and makes MPI return its errors. From
/// then on, a rank that exits, or throws out of main or a thread, without calling `finish` ends the job with MPI_Abort
/// (code 70, or the code of the Error). Otherwise its peers would wait forever.
class Environment {
 public:
  /// Collective over all ranks of the job.
  /// @throws ConfigError  MPI does not support MPI_THREAD_MULTIPLE, or Slurm started several tasks but MPI found one
  ///                      (srun without --mpi=pmix)
  Environment(int* argc, char*** argv);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  /// Calls MPI_Finalize, unless ranks have died and the others have continued: these leave without it. Collective:
  /// every rank calls it after all ranks have agreed to end.
  void finish();

  /// Ends the job at once with `code`, after a failure that is known on this rank only.
  /// @param is_remote  another rank failed with this code; it is given time to end the job first
  [[noreturn]] static void abort(ExitCode code, bool is_remote = false) noexcept;
};

enum class Op { sum, min, max };

/// A group of ranks with its own MPI communicator (a duplicate of the one it was created from).
///
/// For control messages and small data; gradients use Collectives. All members except rank, size, handle and
/// world_ranks are collective: every rank of the group calls them in the same order. Counts above 2^31 - 1 are sent in
/// pieces. Instantiated for float, double, std::int32_t, std::int64_t, std::uint8_t, std::uint64_t and std::byte (which
/// has no reductions).
/// @throws CommError  from every member, if MPI reports a failure
class Communicator {
 public:
  /// Duplicates `parent`. Collective over `parent`.
  /// @param parent  MPI_COMM_NULL = this process alone, without MPI: MPI need not be initialized
  explicit Communicator(MPI_Comm parent);
  Communicator(Communicator&& other) noexcept;
  Communicator& operator=(Communicator&& other) noexcept;
  ~Communicator();  ///< not collective

  /// Messages of it are still under way after a failure: it is not freed, for MPI may give its number, and with it what
  /// arrives late, to the next communicator (MPICH does). Not collective.
  void keep_open() const noexcept { is_kept_open_ = true; }

  static Communicator world() { return Communicator(MPI_COMM_WORLD); }
  /// One rank that needs no MPI.
  static Communicator alone() { return Communicator(MPI_COMM_NULL); }

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  bool is_root() const noexcept { return rank_ == 0; }
  MPI_Comm handle() const noexcept { return comm_; }  ///< MPI_COMM_NULL without MPI and after a move

  void barrier() const;

  /// Reduces element by element, in place. Every rank gets the result.
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

  /// The texts of all ranks, in rank order, on every rank. Any length.
  std::vector<std::string> all_gather(const std::string& mine) const;
  /// The same on `root` only; empty on other ranks.
  std::vector<std::string> gather(const std::string& mine, int root = 0) const;
  /// The text of the root, on every rank.
  std::string broadcast(const std::string& text, int root = 0) const;

  /// Whether all ranks pass true.
  bool agree(bool yes) const { return all_reduce<std::int32_t>(yes ? 1 : 0, Op::min) == 1; }

  /// The rank of each member in MPI_COMM_WORLD. Not collective.
  std::vector<int> world_ranks() const;

  /// Runs `step` on every rank. If it throws on any rank, every rank throws the error of the lowest failing rank, with
  /// the same class and text, marked as agreed. If it fails on some of several ranks only, the message starts with
  /// "rank R: ". If `step` uses this communicator, it must not throw between collective calls of one rank only.
  void all_or_throw(const std::function<void()>& step) const;

  /// The ranks with the same `color`, ordered by `key` then rank.
  /// @throws std::logic_error  the color is negative; thrown before any communication
  Communicator split(int color, int key = 0) const;
  /// The ranks on this host (MPI_COMM_TYPE_SHARED).
  Communicator split_by_host() const;

 private:
  struct Adopt {};
  Communicator(Adopt, MPI_Comm comm);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  mutable bool is_kept_open_ = false;
};

}  // namespace lockstep::mpi
