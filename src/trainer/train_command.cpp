// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "checkpoints/store/lease.hpp"
#include "core/system/memory.hpp"
#include "core/text/duration.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/train_settings.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"
#include "mpi/shared/survivors.hpp"
#include "report/files/run_files.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/failure/failure_screen.hpp"
#include "trainer/heal/recovery.hpp"
#include "trainer/run_environment.hpp"
#include "trainer/run_folder_name.hpp"
#include "trainer/run_output.hpp"
#include "trainer/run_report.hpp"

namespace lockstep::trainer {

namespace {

using Clock = std::chrono::steady_clock;

engine::TimeLimit limit_in(Clock::time_point from, double seconds, const std::string& source) {
  const auto length = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  return {.end = from + length, .seconds = seconds, .source = source};
}

/// A script that passes USR2 on to mpirun says so, as tools/slurm/train-mpirun.sbatch does.
bool are_signals_forwarded() { return std::getenv("LOCKSTEP_SIGNALS_FORWARDED") != nullptr; }

namespace fs = std::filesystem;

/// Fills in run.name and run.dir, and makes the folder. One that the program names is new: runs that start in the same
/// second get "-2", "-3" and so on. Collective: every rank gets the root's.
/// @return  whether another start would get another folder
bool settle_folder(const mpi::Communicator& world, config::Config& config) {
  const Section& run = config.section("run");
  RunFolderName made = run_folder_name(world, run);
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    if (made.dir.empty()) {
      made.name = report::make_new_folder("runs", made.name);
      made.dir = "runs/" + made.name;
    }
    report::make_run_folder(made.dir);
  });
  made.name = world.broadcast(made.name);
  made.dir = world.broadcast(made.dir);
  if (run.text("name") != made.name) config.set("run.name", made.name, "derived");
  if (run.text("dir") != made.dir) config.set("run.dir", made.dir, "derived");
  return made.names_time;
}

log::Level console_level(const config::Invocation& invocation) {
  if (invocation.options.contains("quiet")) return log::Level::warning;
  const std::string& level = invocation.config.section("log").text("level");
  if (level == "debug") return log::Level::debug;
  if (level == "warning") return log::Level::warning;
  return level == "error" ? log::Level::error : log::Level::info;
}

std::string last_words(engine::Outcome outcome, const std::string& folder) {
  if (outcome == engine::Outcome::done) return "done; see " + folder + "/report.html";
  const std::string verb = outcome == engine::Outcome::ended ? "ended" : "stopped";
  return verb + " on request; resume with --resume=auto --run.dir=" + folder;
}

/// The names that the ranks give, in rank order, without repetitions. Collective.
std::vector<std::string> named_by_ranks(const mpi::Communicator& world, const std::string& name) {
  std::vector<std::string> names = world.all_gather(name);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// The names of the GPUs; none where run.device, or a rank without a GPU, rules them out. Collective.
std::vector<std::string> gpus_of(const mpi::Communicator& world, const std::string& device) {
  if (device == "cpu") return {};
  const std::string gpu = mpi::gpu_name(mpi::Topology::of(world).local_rank);
  return world.agree(!gpu.empty()) ? named_by_ranks(world, gpu) : std::vector<std::string>();
}

/// Whether a run has nothing left to do after the checkpoint from which it would resume, and says so. Collective.
bool is_finished(const mpi::Communicator& world, const config::Config& config, const std::string& checkpoint) {
  const auto sentence = engine::finished_at(world, config.sections(), checkpoint);
  if (!sentence) return false;
  log::info("the run is finished: " + *sentence);
  return true;
}

/// Sets resume=auto where slurm has requeued the job, unless the user gave `resume`. Collective.
void resume_if_requeued(const mpi::Communicator& world, config::Config& config) {
  const auto job = world.is_root() ? mpi::slurm_job() : std::nullopt;
  const std::string count = world.broadcast(job ? std::to_string(job->restarts) : "0");
  if (count == "0" || !config.section("").is_default("resume")) return;
  config.set("resume", "auto", "SLURM_RESTART_COUNT=" + count);
}

/// Says which slurm job this is and how often it was requeued; warns when slurm's signals do not reach the ranks. Not
/// collective; for rank 0.
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

/// How often slurm has requeued the job; none outside of slurm. For rank 0. Not collective.
std::optional<int> restarts() {
  const auto job = mpi::slurm_job();
  return job ? std::optional(job->restarts) : std::nullopt;
}

/// When the run has to be over: by train.time_limit, else by slurm's own limit. On rank 0; none elsewhere, and where
/// there is no limit. Collective.
/// @param started  from when train.time_limit counts
/// @throws ConfigError  train.time_limit is no time span, on every rank
std::optional<engine::TimeLimit> time_limit(const mpi::Communicator& world, const Section& train,
                                            Clock::time_point started) {
  std::optional<double> seconds;
  world.all_or_throw([&] { seconds = engine::time_limit_of(train); });
  if (!world.is_root()) return std::nullopt;
  if (seconds) return limit_in(started, *seconds, "train.time_limit");
  const auto job = mpi::slurm_job();
  if (!job) return std::nullopt;
  const auto left = mpi::seconds_left(*job);
  if (left) return limit_in(Clock::now(), *left, "Slurm's time limit");
  log::info("the end time of Slurm job " + job->id + " is unknown; set train.time_limit to stop in time");
  return std::nullopt;
}

/// Describes the memory of this rank's GPU in the run's folder, if the run ends because the GPU has no more.
void write_memory_report(const std::string& folder, int rank) {
  const std::string description = noted_gpu_memory();
  if (description.empty()) return;
  const std::string file = rank_file(folder, rank, "memory", ".txt");
  try {
    report::write_text(file, description);
    log::error("the memory of the GPU is described in " + file);
  } catch (const Error& error) {
    log::warning(error.what());
  }
}

/// The wait of a rank that is about to end the job because of a failure of its own: gives rank 0, which has heard of
/// it, time to write failure.json, STATUS.json and report.html.
void await_report(const std::string& folder) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLimit(1000);
  constexpr milliseconds kPoll(10);
  constexpr milliseconds kRest(250);  // time from the first file, failure.json, to the last one
  std::error_code unreadable;
  for (milliseconds waited(0); waited < kLimit; waited += kPoll) {
    if (fs::exists(folder + "/failure.json", unreadable)) return std::this_thread::sleep_for(kRest);
    std::this_thread::sleep_for(kPoll);
  }
}

/// One attempt of a run that can be tried again.
struct Attempt {
  config::Config config;             ///< contains the folder of the run, once there is one
  std::optional<Recovery> recovery;  ///< the failure before it
  std::int64_t first_step = 0;       ///< steps that were done when it began to train
  std::int64_t reached_step = 0;     ///< steps that are done
  /// Whether the other ranks continue after an error, because ranks have died; empty = they never do.
  std::function<bool(const Error&)> may_continue = {};
};

/// Keeps the progress of an attempt, and tells it to who started the job. On every rank.
void note_progress(Attempt& attempt, const std::shared_ptr<ResultFile>& result, engine::TrainRequest& request) {
  request.on_start = [&attempt, tell = std::move(request.on_start)](std::int64_t step, const auto& from) {
    attempt.first_step = step;
    attempt.reached_step = step;
    if (tell) tell(step, from);
  };
  const auto after_step = [&attempt, result](engine::RunView&, const engine::StepReport& step) {
    attempt.reached_step = step.progress.step;
    if (result) result->put_step(step.progress.step);
  };
  request.hooks.emplace_back(engine::Priority::lowest,
                             engine::callback_hook({.after_step = after_step, .reads = engine::HookReads::nothing()}));
}

/// Waits while the file system of a run is full, for some minutes: a start writes files, without which a run that was
/// training need not end. Collective.
void await_space(const mpi::Communicator& world, const std::string& folder) {
  static constexpr std::uintmax_t kNeededBytes = 1 << 20;
  static constexpr std::chrono::minutes kLimit(10);
  static constexpr std::chrono::milliseconds kPause(200);
  const Clock::time_point limit = Clock::now() + kLimit;
  const auto is_full = [&] {
    std::error_code unknown;
    return world.is_root() && fs::space(folder, unknown).available < kNeededBytes && Clock::now() < limit;
  };
  if (world.agree(!is_full())) return;
  if (world.is_root()) log::warning(folder + " has no space left; the run continues when there is some");
  do {
    std::this_thread::sleep_for(kPause);
  } while (!world.agree(!is_full()));
}

ExitCode train_once(const CommandJob& job, const config::Invocation& invocation, Attempt& attempt) {
  const mpi::Communicator& world = job.world;
  config::Config& config = attempt.config;
  const auto started = std::chrono::steady_clock::now();
  world.all_or_throw([&] { engine::check_settings(config.sections(), job.registry); });
  settle_teacher(job, config);
  resume_if_requeued(world, config);
  if (attempt.recovery) await_space(world, config.section("run").text("dir"));
  const bool is_folder_new = settle_folder(world, config);
  const Section& run = config.section("run");
  const std::string folder = run.text("dir");
  const auto result = world.is_root() ? ResultFile::of_environment() : nullptr;
  if (result) result->put_folder(folder);
  const std::string resume = config.section("").text("resume");
  const std::string checkpoints = folder + "/ckpt";
  const std::vector<std::string> hosts = named_by_ranks(world, mpi::Topology::of(world).host_name);
  // Nothing is written to the folder of a run without the lease, which rank 0 holds.
  const std::shared_ptr<checkpoints::Lease> lease = engine::agreed(
      world, [&] { return world.is_root() ? std::make_shared<checkpoints::Lease>(checkpoints) : nullptr; });
  const auto next = engine::check_resume(world, resume, checkpoints, config.section("ckpt").text("local_dir"));
  if (next && is_finished(world, config, *next)) return ExitCode::done;
  const std::string environment = environment_json(world.size(), hosts, gpus_of(world, run.text("device")));
  std::unique_ptr<RunReport> report;
  world.all_or_throw([&] {
    fs::create_directories(folder + "/logs");
    log::configure({.rank = world.rank(),
                    .world_size = world.size(),
                    .file = rank_file(folder, world.rank()),
                    .console_level = console_level(invocation)});
    if (!world.is_root()) return;
    write_run_files(folder, config, environment);
    report::write_text(folder + "/argv.txt", report::shell_line(job.arguments));
    const Section& settings = config.section("log");
    report = std::make_unique<RunReport>(folder, settings.boolean("tensorboard"), settings.real("console_s"));
  });
  if (resume == "auto" && is_folder_new) {
    log::warning(
        "resume=auto has no effect without run.dir or run.name, or with {time} in them, because the output folder is "
        "new: "
        "starting a new run");
  }
  log::info("run " + folder + ": " + std::to_string(world.size()) + (world.size() == 1 ? " rank" : " ranks") + " on " +
            std::to_string(hosts.size()) + (hosts.size() == 1 ? " host" : " hosts"));
  log::debug(environment_line());
  if (world.is_root()) log_batch_job();

  engine::TrainRequest request{.sections = config.sections(),
                               .registry = job.registry,
                               .checkpoint_directory = checkpoints,
                               .lease = lease,
                               .config_ini = config.to_ini(),
                               .environment_json = environment,
                               .reporter = {},
                               .on_start = {},
                               .time_limit = time_limit(world, config.section("train"), started),
                               .restarts = restarts(),
                               .hooks = {}};
  if (report) report_to(*report, request);
  if (report && attempt.recovery) report->on_recovery(*attempt.recovery);
  note_progress(attempt, result, request);
  FailureScreen screen(world, folder, config.to_ini(), config.section("comm").real("timeout_s"),
                       static_cast<bool>(attempt.may_continue));
  try {
    const engine::Outcome outcome = engine::train(world, std::move(request));
    if (report) report->on_end(outcome);
    log::info(last_words(outcome, folder));
    return exit_code_of(outcome);
  } catch (const Error& error) {
    if (attempt.may_continue && attempt.may_continue(error)) throw;
    if (error.exit_code() == kOutOfMemory) write_memory_report(folder, world.rank());
    if (lease && lease->is_lost()) report.reset();  // the records are those of another run now
    if (screen.is_told_by_another()) report.reset();
    if (report) report->on_failure(error, static_cast<int>(error.exit_code()));
    const bool is_told = screen.conclude(error.exit_code(), message_of(error), error.is_agreed(), error.is_remote());
    // The screen has waited for the files of rank 0, which ends the job soon afterwards.
    if (!screen.is_on() && !report && !lease && !engine::is_known_to_peers(error)) await_report(folder);
    if (is_told) throw_remote(error.exit_code(), error.what());
    throw;
  } catch (const std::exception& failure) {
    const auto conclude = [&](const std::exception& error, ExitCode code) {
      if (report) report->on_failure(error, static_cast<int>(code));
      screen.conclude(code, message_of(error), /*is_agreed=*/false, /*is_remote=*/false);
    };
    if (is_out_of_memory(failure)) {
      write_memory_report(folder, world.rank());
      conclude(out_of_memory_error(failure), kOutOfMemory);
    } else {
      conclude(failure, ExitCode::internal);
    }
    if (!screen.is_on() && !report) await_report(folder);
    throw;
  }
}

/// Trains, and when ranks die, continues with those that are left. Every attempt begins with the state of the newest
/// checkpoint or copy in memory.
/// @throws CommError  as many recoveries as run.max_heals admits have followed each other without a new checkpoint
ExitCode train_with_survivors(const CommandJob& job, const config::Invocation& invocation, Attempt& attempt) {
  using std::chrono::milliseconds;
  static constexpr milliseconds kUntilDeathsAreSeen(500);
  const Section& run = invocation.config.section("run");
  const std::int64_t max_heals = run.integer("max_heals");
  if (!gpus_of(job.world, run.text("device")).empty()) {
    throw_agreed(ExitCode::configuration,
                 run.cite("heal") +
                     ": ranks with GPUs cannot continue in place; set run.heal=none, and let trainer "
                     "heal start the job again");
  }
  const auto tell_failure = [result = ResultFile::of_environment()] {
    if (result) result->put_code(ExitCode::communication);
  };
  mpi::Survivors survivors(
      job.world, std::chrono::duration<double>(invocation.config.section("comm").real("timeout_s")), tell_failure);
  attempt.may_continue = [&survivors](const Error& error) {
    return !error.is_agreed() && survivors.awaits_loss(kUntilDeathsAreSeen);
  };
  std::optional<mpi::Communicator> left;
  for (std::int64_t fruitless = 0;;) {
    const mpi::Communicator& world = left ? *left : job.world;
    const bool was_root = world.is_root();
    std::string root;
    try {
      root = world.broadcast(checkpoints::this_holder().text());
      const CommandJob of_left{world, job.arguments, job.registry, job.keys, job.commands};
      const ExitCode code = train_once(of_left, invocation, attempt);
      world.barrier();  // who leaves earlier looks like one that has died
      return code;
    } catch (const Error& error) {
      if (!attempt.may_continue(error)) throw;
      const std::string loss = survivors.lost();
      fruitless = attempt.recovery && attempt.recovery->resumed_step >= attempt.first_step ? fruitless + 1 : 0;
      if (fruitless > max_heals) {
        throw CommError(loss + ", and the run has recovered " + std::to_string(fruitless) +
                        " times without a new checkpoint (run.max_heals)");
      }
      attempt.recovery = Recovery{.cause = loss,
                                  .rung = 1,
                                  .failed_at = seconds_since_1970(),
                                  .reached_step = attempt.reached_step,
                                  .resumed_step = attempt.first_step};
    }
    log::warning(attempt.recovery->cause + "; the ranks that are left continue");
    attempt.config.set("resume", "auto", "run.heal");
    left = survivors.shrink();
    // The lease of a rank 0 on another host cannot be judged: only its survivors know that it has died.
    if (!left->agree(!was_root)) continue;
    left->all_or_throw([&] {
      const std::string& folder = attempt.config.section("run").text("dir");
      if (left->is_root() && !folder.empty()) checkpoints::end_lease(folder + "/ckpt", root);
    });
  }
}

}  // namespace

ExitCode train(const CommandJob& job, const config::Invocation& invocation) {
  if (invocation.config.section("run").boolean("dry_run")) return plan_job(job, invocation);
  Attempt attempt{.config = invocation.config, .recovery = Recovery::of_environment()};
  const bool may_shrink = invocation.config.section("run").text("heal") == "shrink" && job.world.size() > 1;
  const bool is_open_mpi = mpi::library_version().starts_with("Open MPI");
  if (may_shrink && is_open_mpi) return train_with_survivors(job, invocation, attempt);
  if (may_shrink && job.world.is_root()) {
    log::warning(
        "run.heal=shrink has no effect with " + mpi::library_version() +
        ": ranks continue in place only with Open MPI; start the job with `trainer heal`, which starts it again "
        "after a failure");
  }
  return train_once(job, invocation, attempt);
}

}  // namespace lockstep::trainer
