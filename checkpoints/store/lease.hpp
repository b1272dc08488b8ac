// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <chrono>
#include <string>

namespace lockstep::checkpoints {

/// The right to write to a folder of checkpoints, held by one run at a time: a file LEASE there that names its holder.
///
/// A holder on this host that has ended, one on another host that has not renewed its lease for ten minutes, and an
/// earlier start of the same slurm job are taken for dead, and their lease is taken over.
class Lease {
 public:
  /// Takes the lease; makes the folder where it is missing.
  /// @param patience  how long to wait for a holder on this host to end: a run that was just stopped may still save
  /// @throws CheckpointError  another run holds it, and which; or the file cannot be written
  explicit Lease(const std::string& directory, std::chrono::seconds patience = std::chrono::seconds(10));
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease();  ///< gives it back

  /// Whom it was taken over from, for the log; empty when it was free.
  const std::string& taken_from() const noexcept { return taken_from_; }

  /// Says that the holder is alive. Cheap enough for every step: it does something once in half a minute.
  void renew() noexcept;

 private:
  std::string path_;
  std::string taken_from_;
  std::chrono::steady_clock::time_point renewed_at_;
};

}  // namespace lockstep::checkpoints
