// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/batch_job.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <cstdlib>
#include <string>

#include "core/text/duration.hpp"
#include "mpi/process/slurm.hpp"

namespace lockstep::trainer {

namespace {

using Clock = std::chrono::steady_clock;

engine::TimeLimit limit_in(Clock::time_point from, double seconds, const std::string& source) {
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return {.end = from + length, .seconds = seconds, .source = source};
}

/// A script that passes USR2 on to mpirun says so, as tools/slurm/train-mpirun.sbatch does.
bool are_signals_forwarded() { return std::getenv("LOCKSTEP_SIGNALS_FORWARDED") != nullptr; }

}  // namespace

void resume_if_requeued(const mpi::Communicator& world, config::Config& config) {
  const auto job = world.is_root() ? mpi::slurm_job() : std::nullopt;
  const std::string count = world.broadcast(job ? std::to_string(job->restarts) : "0");
  if (count == "0" || !config.section("").is_default("resume")) return;
  config.set("resume", "auto", "SLURM_RESTART_COUNT=" + count);
}

void log_batch_job() {
  const auto job = mpi::slurm_job();
  if (!job) return;
  log::info("Slurm job " + job->id + (job->restarts > 0 ? ", restart " + std::to_string(job->restarts) : ""));
  if (job->is_step_task || are_signals_forwarded()) return;
  log::warning(
      "Slurm job " + job->id +
      ": the ranks were not started by srun, so signals from `--signal=USR2` and `scancel -s USR2` do not reach them; "
      "start with `srun --mpi=pmix`, or forward the signal in the job script as tools/slurm/train-mpirun.sbatch does");
}

std::optional<int> restarts() {
  const auto job = mpi::slurm_job();
  return job ? std::optional(job->restarts) : std::nullopt;
}

std::optional<engine::TimeLimit> time_limit(const mpi::Communicator& world, const Section& train,
                                            Clock::time_point started) {
  const std::string& wanted = train.text("time_limit");
  const auto seconds = parse_duration(wanted);
  world.all_or_throw([&] {
    if (wanted.empty() || (seconds && *seconds > 0)) return;
    throw ConfigError(train.cite("time_limit") + ": '" + wanted +
                      "' is not a duration; use seconds, H:MM:SS (for example 23:30:00), or D-HH:MM:SS");
  });
  if (!world.is_root()) return std::nullopt;
  if (seconds) return limit_in(started, *seconds, "train.time_limit");
  const auto job = mpi::slurm_job();
  if (!job) return std::nullopt;
  const auto left = mpi::seconds_left(*job);
  if (left) return limit_in(Clock::now(), *left, "Slurm's time limit");
  log::info("the end time of Slurm job " + job->id + " is unknown; set train.time_limit to stop in time");
  return std::nullopt;
}

}  // namespace lockstep::trainer
