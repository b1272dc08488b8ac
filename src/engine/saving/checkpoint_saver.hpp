// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "checkpoints/store/lease.hpp"
#include "checkpoints/store/retention.hpp"
#include "checkpoints/store/snapshot.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/duration.hpp"
#include "engine/saving/local_copies.hpp"
#include "engine/settings/saving_settings.hpp"

namespace lockstep::engine {

struct SaverOptions {
  std::string directory;   ///< the run's folder of checkpoints
  std::string local = {};  ///< folder on the local disk of rank 0, where they are written first; empty = none
  bool is_async = true;
  bool is_single_file = false;
  int writers = 1;  ///< ranks that write a part each
  checkpoints::RetentionRule retention = {};
  std::int64_t verify_every = 0;  ///< the first save and every such one is read back; 0 = none
  std::int64_t max_failures = 5;  ///< the run ends when this many saves in a row have failed
  bool allows_nonfinite = false;  ///< also saves parameters that contain NaN or infinity
  std::shared_ptr<checkpoints::Lease> lease =
      nullptr;  ///< lease of the directory, on rank 0; null = the saver takes it
};

/// @param hosts  how many there are: so many ranks write a sharded checkpoint unless ckpt.writers says otherwise
/// @throws ConfigError  ckpt.local_dir with ckpt.layout=shards
SaverOptions saver_options(const SavingSettings& settings, std::string directory, int hosts);

/// Writes checkpoints while training continues, one at a time.
///
/// A save is a copy of the state at a step boundary; a thread of each writing rank writes it, and when all have, rank 0
/// commits. No thread uses MPI: what they have done is agreed on at step boundaries. A save that fails changes nothing
/// on the disk, is tried again, and ends the run only after `max_failures` in a row. Parameters that are not finite end
/// the run when the writers have found them, because no run could continue from them.
///
/// With a local disk a save ends when the checkpoint is complete there; a thread of rank 0 copies it to the run's
/// folder (LocalCopies). If the local disk is full, the checkpoint is written to the run's folder directly.
class CheckpointSaver {
 public:
  /// Takes the lease of the directory and proves that it can be written to. Collective.
  CheckpointSaver(const mpi::Communicator& world, SaverOptions options);
  /// Gives up what is still being written.
  ~CheckpointSaver();

  /// Whether this rank writes a part, and must be given the whole state.
  bool is_writer() const noexcept { return part_.has_value(); }
  bool is_busy() const noexcept { return job_ != nullptr; }

  /// Begins a save. Collective.
  /// @param capture   gives the state, complete on every writer; collective
  /// @param can_wait  while another save is under way this one is skipped; else training waits for that one
  void save(std::int64_t step, bool can_wait, const std::function<checkpoints::Archive()>& capture);
  /// Called at every step boundary: takes note of what the writers have done. Collective while a save is under way.
  /// @throws NumericError  there are parameters that are not finite; also of the calls that wait
  void poll();
  /// Waits until what is being written is in the run's folder, or has failed. Collective.
  void finish();
  /// Waits for a save under way, then for one of `step` unless there is one, tried up to three times. Collective.
  /// @throws CheckpointError  it failed
  void save_now(std::int64_t step, const std::function<checkpoints::Archive()>& capture);

  /// Whether another run was found to hold the lease, so that nothing can be saved any more. On rank 0.
  bool is_lease_lost() const noexcept { return options_.lease && options_.lease->is_lost(); }
  /// Whether a save failed that should be tried again now. On rank 0.
  bool is_retry_due() const;
  std::int64_t saved_step() const noexcept { return saved_step_; }
  /// The time from the boundary at which it began until it is in the run's folder, of the longest save so far; 0 before
  /// the first.
  double longest_seconds() const { return longest_seconds_ + (copies_ ? copies_->longest_seconds() : 0); }
  /// Starting at the next save, the checkpoints of these steps stay. Until all of them are there, those stay, too, that
  /// stayed before: who names a better one has not saved it yet.
  void keep_best(std::vector<std::int64_t> steps) { best_steps_ = std::move(steps); }
  /// The checkpoint that the run continued from stays until there are two newer ones.
  void keep_origin(std::int64_t step) { origin_step_ = step; }

 private:
  /// A checkpoint when it is committed.
  struct Committed {
    std::int64_t step = 0;
    bool is_verified = false;
    std::vector<std::int64_t> best_steps = {};  // that stay
  };

  struct SaveJob {
    Committed what;
    std::string directory;  // receives the checkpoint: the run's folder, or the local one
    std::string staged;
    checkpoints::Archive archive;  // empty on ranks that do not write
    SteadyClock::time_point began;
    double stalled_seconds = 0;  // stalled seconds: what training lost to it
    std::string committed;       // rank 0, one writer
    std::exception_ptr failure;
    bool is_nonfinite = false;  // the failure: parameters of this rank's part are not finite
    std::atomic<bool> is_done = false;
    std::thread thread;
  };

  void require_lease() const;
  void begin(std::int64_t step, const std::function<checkpoints::Archive()>& capture);
  /// That write a part: training has the other cores.
  int threads() const { return options_.is_async ? 1 : checkpoints::io_threads(); }
  void write(SaveJob& job);
  void write_and_commit(SaveJob& job);
  void stage(SaveJob& job);
  std::string commit(const SaveJob& job);
  void check_and_retain(const std::string& checkpoint, const Committed& what);
  void retain(const Committed& what);
  void complete();
  void note_failure(const std::string& what);
  [[noreturn]] void end_nonfinite(std::int64_t step, const std::string& what);
  [[noreturn]] void end_run(const std::string& what);

  const mpi::Communicator& world_;
  SaverOptions options_;
  std::optional<checkpoints::FilePart> part_;  // that this rank writes
  checkpoints::Snapshot snapshot_;
  std::unique_ptr<SaveJob> job_;
  std::int64_t saved_step_ = -1;
  std::vector<std::int64_t> best_steps_;
  std::optional<std::int64_t> origin_step_;
  std::mutex retaining_;                       // guards the next two members and the deletion of checkpoints
  std::vector<std::int64_t> kept_steps_;       // the best ones when all of them were there last
  std::optional<std::int64_t> verified_step_;  // newest that was read back
  std::int64_t saves_ = 0;
  std::int64_t passed_over_ = 0;
  std::int64_t failures_ = 0;  // failed saves in a row
  SteadyClock::time_point retry_at_;
  double longest_seconds_ = 0;
  std::string last_failure_;
  std::unique_ptr<LocalCopies> copies_;  // rank 0 with a local disk; last: its thread uses the members above
};

}  // namespace lockstep::engine
