// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <source_location>
#include <string>

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
/// OMPI_MCA_* variables), initialises with MPI_THREAD_MULTIPLE and makes MPI return its errors. From then on a rank
/// that exits, or throws past main or a thread, without having called `finish` takes the whole job down by MPI_Abort
/// (code 70, or an Error's own) instead of leaving its peers in a collective for ever.
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
  [[noreturn]] static void abort(ExitCode code) noexcept;
};

}  // namespace lockstep::mpi
