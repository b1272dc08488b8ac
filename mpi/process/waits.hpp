// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <optional>

// Waits for other ranks that can be given up. Usually a rank that dies ends the job, and MPI's own waits are good
// enough. In a job that survives the death of a rank, someone sets a check, and all waits look at it.
namespace lockstep::mpi {

/// Sets the function that waits call from time to time, on any thread. It throws CommError if a wait is of no use any
/// more. Empty = waits are those of MPI.
void set_wait_check(std::function<void()> look);
bool has_wait_check() noexcept;
/// Calls the function, if there is one.
void check_wait();

/// Waits for a request that was just started. Without a check, this is MPI_Wait.
/// @param call  name for messages
/// @throws CommError  MPI reports a failure, or the check gives up. The request is then left to MPI, which may still
///                    write to its memory
void wait_for(MPI_Request& request, const char* call);

/// Notes that ranks of the job have died, so that calls of MPI that need all ranks are left out at the end.
void note_loss() noexcept;
bool has_lost_ranks() noexcept;

/// Marks calls of MPI that wait for other ranks and cannot be given up. Of nested marks, the outer one counts.
class UnboundedCall {
 public:
  UnboundedCall();
  ~UnboundedCall();
  UnboundedCall(const UnboundedCall&) = delete;
  UnboundedCall& operator=(const UnboundedCall&) = delete;

  /// How long a thread of this process has been in such a call; none = no thread is.
  static std::optional<std::chrono::steady_clock::duration> duration();

 private:
  bool is_outer_;
};

}  // namespace lockstep::mpi
