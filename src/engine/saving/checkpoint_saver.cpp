// SPDX-License-Identifier: BSD-3-Clause
#include "engine/saving/checkpoint_saver.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/checkpoint_index.hpp"
#include "core/text/text.hpp"
#include "engine/saving/progress_lines.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/state/paths.hpp"

namespace lockstep::engine {

namespace {

constexpr int kTriesOfAFinalSave = 3;
constexpr std::chrono::seconds kFirstRetryAfter{1};
constexpr std::int64_t kMaxDoublings = 6;

std::string in_seconds(double seconds) { return fmt::format("{:.3f} s", seconds); }

/// A launcher may have tied the rank to the core that it computes on; the writer may use any that the job has.
void leave_the_core_of_the_rank() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &all);
  ::sched_setaffinity(0, sizeof all, &all);
}

/// Writers are spread evenly over the ranks: as many as hosts are the first ranks of hosts of one size.
std::optional<checkpoints::FilePart> part_of(int rank, int ranks, int writers) {
  const auto share = [&](int r) { return static_cast<std::int64_t>(r) * writers / ranks; };
  if (rank > 0 && share(rank) == share(rank - 1)) return std::nullopt;
  return checkpoints::FilePart{static_cast<std::uint32_t>(share(rank)), static_cast<std::uint32_t>(writers)};
}

std::string words_of(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& error) {
    return message_of(error);
  }
}

/// Bytes of all arrays.
std::uint64_t bytes_of(const checkpoints::Archive& archive) {
  std::uint64_t bytes = 0;
  for (const std::string& path : archive.array_paths()) bytes += archive.array(path).bytes.size();
  return bytes;
}

}  // namespace

SaverOptions saver_options(const SavingSettings& settings, std::string directory, int hosts) {
  if (!settings.local_dir.empty() && settings.layout == "shards") {
    throw ConfigError(
        "ckpt.local_dir with ckpt.layout=shards is not supported: the parts would be on the local disks of several "
        "hosts; choose ckpt.layout=folder or file");
  }
  std::string local = local_folder(settings.local_dir, directory);
  return {.directory = std::move(directory),
          .local = std::move(local),
          .is_async = settings.is_async,
          .is_single_file = settings.layout == "file",
          .writers = settings.layout == "shards" ? (settings.writers == 0 ? hosts : settings.writers) : 1,
          .retention = {.keep_last = settings.keep_last,
                        .keep_every = settings.keep_every,
                        .keep_age_hours = settings.keep_age_hours},
          .verify_every = settings.verify_every,
          .max_failures = settings.max_failures,
          .allows_nonfinite = settings.allows_nonfinite};
}

CheckpointSaver::CheckpointSaver(const mpi::Communicator& world, SaverOptions options)
    : world_(world), options_(std::move(options)) {
  options_.writers = std::min(options_.writers, world_.size());
  part_ = part_of(world_.rank(), world_.size(), options_.writers);
  world_.all_or_throw([this] {
    if (!world_.is_root()) return;
    if (!options_.lease) options_.lease = std::make_shared<checkpoints::Lease>(options_.directory);
    if (!options_.lease->taken_from().empty()) {
      log::warning("took over the checkpoint folder of a run that has ended: " + options_.lease->taken_from());
    }
    checkpoints::remove_stale_files(options_.directory);
    checkpoints::probe(options_.directory);
    if (!options_.local.empty()) copies_ = std::make_unique<LocalCopies>(options_.local, options_.directory);
  });
}

CheckpointSaver::~CheckpointSaver() {
  if (!job_) return;
  if (job_->thread.joinable()) job_->thread.join();
  if (world_.is_root() && job_->committed.empty()) checkpoints::abandon(job_->staged);
}

void CheckpointSaver::save(std::int64_t step, bool can_wait, const std::function<checkpoints::Archive()>& capture) {
  if (job_ && !can_wait) complete();
  if (job_) {
    ++passed_over_;
    if (world_.is_root()) {
      log::warning("checkpoint at step " + std::to_string(step) + " skipped: the checkpoint of step " +
                   std::to_string(job_->what.step) + " is still being written (" + std::to_string(passed_over_) +
                   " skipped so far)");
    }
    return;
  }
  require_lease();
  begin(step, capture);
  if (!options_.is_async) complete();
}

void CheckpointSaver::save_now(std::int64_t step, const std::function<checkpoints::Archive()>& capture) {
  if (job_) complete();
  require_lease();
  for (int i = 0; i < kTriesOfAFinalSave && saved_step_ != step; ++i) {
    begin(step, capture);
    complete();
  }
  world_.all_or_throw([&] {
    if (world_.is_root() && saved_step_ != step) throw CheckpointError(last_failure_);
    if (copies_) copies_->finish();
  });
}

void CheckpointSaver::finish() {
  if (job_) complete();
  world_.all_or_throw([&] {
    if (copies_) copies_->finish();
  });
}

/// Collective.
void CheckpointSaver::require_lease() const {
  world_.all_or_throw([this] {
    if (world_.is_root()) options_.lease->require();
  });
}

/// Copies the state and starts the writers.
void CheckpointSaver::begin(std::int64_t step, const std::function<checkpoints::Archive()>& capture) {
  const auto began = SteadyClock::now();
  job_ = std::make_unique<SaveJob>();
  job_->what = {.step = step,
                .is_verified = options_.verify_every > 0 && saves_ % options_.verify_every == 0,
                .best_steps = best_steps_};
  job_->began = began;
  checkpoints::Archive live = capture();
  // Who writes at once needs no copy. Without memory for one the save is not asynchronous.
  bool is_copied = options_.is_async;
  if (is_writer()) {
    try {
      job_->archive = options_.is_async ? snapshot_.copy(live) : std::move(live);
    } catch (const std::bad_alloc&) {
      log::warning("not enough memory for a copy of the state: training waits until it is saved");
      job_->archive = std::move(live);
      is_copied = false;
    }
    try {
      if (world_.is_root()) stage(*job_);
    } catch (const std::exception&) {
      job_->failure = std::current_exception();
    }
  }
  if (options_.writers > 1) {
    job_->staged = world_.broadcast(job_->staged);
    is_copied = world_.agree(is_copied);
  }
  if (is_writer() && !job_->staged.empty()) {
    job_->thread = std::thread([this, job = job_.get()] { write(*job); });
  } else {
    job_->is_done = true;
  }
  if (!is_copied && options_.is_async && job_->thread.joinable()) job_->thread.join();
  job_->stalled_seconds = seconds_between(began, SteadyClock::now());
}

/// Rank 0: makes the folder that the checkpoint is written in, on the local disk if there is one.
void CheckpointSaver::stage(SaveJob& job) {
  const bool is_local = copies_ && job.directory.empty();
  job.directory = is_local ? options_.local : options_.directory;
  try {
    job.staged = checkpoints::stage(job.directory, job.what.step);
  } catch (const CheckpointError& error) {
    if (!is_local) throw;
    log::warning(std::string("the local disk is not used for this checkpoint: ") + error.what());
    stage(job);
  }
}

/// Writes on a thread of its own: this rank's part, and where no other rank writes, everything up to the end.
void CheckpointSaver::write(SaveJob& job) {
  try {
    leave_the_core_of_the_rank();
    const TransferLines progress("saving " + checkpoints::folder_name(job.what.step),
                                 bytes_of(job.archive) / static_cast<std::uint64_t>(options_.writers),
                                 checkpoints::bytes_written);
    try {
      write_and_commit(job);
    } catch (const CheckpointError& error) {
      if (!copies_ || job.directory == options_.directory) throw;
      log::warning(std::string("the local disk is not used for this checkpoint: ") + error.what());
      checkpoints::abandon(job.staged);
      stage(job);
      write_and_commit(job);
    }
  } catch (const std::exception&) {
    job.failure = std::current_exception();
  }
  job.is_done = true;
}

void CheckpointSaver::write_and_commit(SaveJob& job) {
  const std::string file = checkpoints::write_part(job.staged, job.what.step, job.archive, *part_, threads());
  if (!options_.allows_nonfinite) {
    const std::string nonfinite = checkpoints::nonfinite_in(file, kParameters);
    job.is_nonfinite = !nonfinite.empty();
    if (job.is_nonfinite) throw NumericError(nonfinite);
  }
  if (options_.writers == 1) job.committed = commit(job);
}

std::string CheckpointSaver::commit(const SaveJob& job) {
  options_.lease->require();
  std::string checkpoint = checkpoints::commit(
      job.directory, job.staged, job.what.step,
      {.parts = static_cast<std::uint32_t>(options_.writers), .is_single_file = options_.is_single_file});
  if (job.directory == options_.directory) {
    check_and_retain(checkpoint, job.what);
  } else {
    copies_->add(checkpoint, [this, what = job.what](const std::string& copy) { check_and_retain(copy, what); });
  }
  return checkpoint;
}

/// Verifies a checkpoint in the run's folder if it is its turn, and deletes those that no rule keeps.
void CheckpointSaver::check_and_retain(const std::string& checkpoint, const Committed& what) {
  const std::lock_guard lock(retaining_);
  if (what.is_verified) {
    try {
      checkpoints::verify(checkpoint, threads());
    } catch (const CheckpointError& error) {
      checkpoints::quarantine(checkpoint);
      throw CheckpointError(std::string("the saved checkpoint could not be verified: ") + error.what());
    }
    verified_step_ = what.step;
  }
  retain(what);
}

void CheckpointSaver::retain(const Committed& what) {
  checkpoints::RetentionRule rule = options_.retention;
  rule.best_steps = what.best_steps;
  rule.origin_step = origin_step_;
  const std::vector<std::int64_t> there = checkpoints::list(options_.directory);
  const bool are_there = std::all_of(what.best_steps.begin(), what.best_steps.end(), [&there](std::int64_t step) {
    return std::binary_search(there.begin(), there.end(), step);
  });
  if (are_there) kept_steps_ = what.best_steps;
  rule.keep_steps = kept_steps_;
  if (verified_step_) rule.keep_steps.push_back(*verified_step_);
  checkpoints::retain(options_.directory, rule);
}

void CheckpointSaver::poll() {
  if (!job_) return;
  const bool is_done = (options_.writers == 1 && !world_.is_root()) || job_->is_done.load();
  if (world_.agree(is_done)) complete();
}

/// Waits for the writers, agrees on what became of the save, and commits where several have written.
void CheckpointSaver::complete() {
  const auto began = SteadyClock::now();
  if (job_->thread.joinable()) job_->thread.join();
  std::string failure = job_->failure ? words_of(job_->failure) : "";
  if (options_.writers > 1) {
    for (const std::string& words : world_.all_gather(failure)) {
      if (failure.empty()) failure = words;
    }
  }
  if (world_.is_root() && !failure.empty() && !job_->staged.empty()) {
    checkpoints::abandon(job_->staged);
  } else if (world_.is_root() && failure.empty() && options_.writers > 1) {
    try {
      job_->committed = commit(*job_);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }
  const auto end = SteadyClock::now();
  const double stalled = job_->stalled_seconds + seconds_between(began, end);
  const std::unique_ptr<SaveJob> job = std::move(job_);
  // Every rank learns how it ended: what comes next depends on it.
  const bool has_lost_copies = copies_ && copies_->failures() >= options_.max_failures;
  std::int64_t failed = job->is_nonfinite ? 3 : has_lost_copies ? 2 : world_.is_root() && !failure.empty() ? 1 : 0;
  if (world_.size() > 1) failed = world_.all_reduce(failed, mpi::Op::max);
  if (failed == 3) {
    end_nonfinite(job->what.step, failure);
  } else if (failed == 2) {
    end_run(copies_ ? copies_->last_failure() : "");
  } else if (failed == 1) {
    note_failure(failure);
  } else {
    saved_step_ = job->what.step;
    ++saves_;
    failures_ = 0;
    longest_seconds_ = std::max(longest_seconds_, seconds_between(job->began, end));
    if (world_.is_root()) {
      const std::string text = "saved " + job->committed + " in " + in_seconds(seconds_between(job->began, end)) +
                               (options_.is_async ? ", training waited " + in_seconds(stalled) : "");
      log::info(text);
    }
  }
}

void CheckpointSaver::note_failure(const std::string& what) {
  last_failure_ = what;
  const std::int64_t doublings = std::min(failures_++, kMaxDoublings);
  retry_at_ = SteadyClock::now() + kFirstRetryAfter * (1 << doublings);
  if (failures_ >= options_.max_failures) end_run(what);
  if (world_.is_root()) {
    log::error("training continues without this checkpoint (failure " + std::to_string(failures_) + " of " +
               std::to_string(options_.max_failures) + " in a row): " + what);
  }
}

/// @param what  the parameters, on rank 0
void CheckpointSaver::end_nonfinite(std::int64_t step, const std::string& what) {
  throw_agreed(ExitCode::numeric, "the parameters are not finite after step " + std::to_string(step) + ": " +
                                      world_.broadcast(what) + kNonfiniteAdvice);
}

/// @param what  the last error, on rank 0
void CheckpointSaver::end_run(const std::string& what) {
  const std::string all = world_.broadcast(what);
  throw_agreed(ExitCode::checkpoint, "ckpt.max_failures = " + std::to_string(options_.max_failures) +
                                         " consecutive saves failed. The last error was: " + all);
}

bool CheckpointSaver::is_retry_due() const { return failures_ > 0 && !job_ && SteadyClock::now() >= retry_at_; }

}  // namespace lockstep::engine
