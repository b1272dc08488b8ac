// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/keys/cited.hpp"
#include "core/text/every.hpp"
#include "engine/hooks/time_limit.hpp"
#include "engine/settings/saving_settings.hpp"

namespace lockstep::checkpoints {
class Lease;
}
namespace lockstep::mpi {
class Communicator;
}
namespace lockstep::parallel {
class PostLocalSgd;
}

namespace lockstep::engine {

struct Saves;
class EventStorage;

// The hooks that every run has, or that other settings than train.hooks ask for. Each states its priority where it is
// created.

/// Sets the options of every parameter group by the schedule, before each step, and passes the schedule what was
/// measured after it. After the hook that evaluates, before the one that saves.
/// @param policy  which schedule holds when a run continues with another one than its checkpoint's, or is longer:
///                config or checkpoint
PrioritizedHook schedule_hook(const std::string& policy = "config");

/// The sentence of an early_stopping hook of `run` by whose stored state the run is over; empty = there is none.
/// @param groups  a checkpoint; its arrays are not read
std::string early_stop_in(const checkpoints::Archive& groups, const Sections& run);

/// The start of the average of weights; the keys are optim::ema_keys.
struct EmaSettings {
  Every every = 1;
  Cited<Begin> begin = {};
  std::string decay_cite = "";

  static EmaSettings from(const Section& ema);
};

/// Takes the weights into the run's average after each step, from ema.begin on. Before the hook
/// that evaluates.
PrioritizedHook average_hook(const EmaSettings& ema);

/// Evaluates the validation split as eval.every says and at the end, and reports `val/loss`, `val/accuracy` and what
/// eval.metrics names: of the average of weights where there is one, unless eval.weights=trained. Leaves in the run's
/// events, under `val/`, the tables of those meters, the confusion matrix of up to 100 classes in any case, and where
/// images are kept the first `log.images` samples that this rank evaluates, with the model's predictions. With
/// eval.every=never, the hook does nothing.
/// @param meters  which eval.metrics may name
/// @throws ConfigError  as EvalSettings::from does
PrioritizedHook evaluate_hook(const Sections& sections,
                              const std::vector<metrics::MeterRow>& meters = metrics::builtin_meters());

/// Measures what train.metrics names while training, and reports an "epoch" record of `train/NAME` and the number of
/// samples behind it after every epoch. Checkpoints hold what the epoch has so far.
/// @param meters  which train.metrics may name
PrioritizedHook train_meters_hook(const Cited<std::vector<std::string>>& names,
                                  const std::vector<metrics::MeterRow>& meters = metrics::builtin_meters());

/// The samples that each rank has replaced since the last call, with the rank. The same list on every rank.
/// Collective.
std::vector<std::pair<int, data::BadSample>> gather_bad_samples(const mpi::Communicator& world,
                                                                data::SampleErrors& errors);

/// A hook for runs that replace samples that cannot be read (data.on_error = replace): logs each such sample once, puts
/// their number into the run's events as "data_errors", appends their names to bad_samples.txt, and ends the run if
/// there are more than data.max_errors.
/// @param directory  folder of bad_samples.txt
PrioritizedHook data_errors_hook(const Every& every, const std::string& directory);

/// Whether a line of the log is due after a step: as `every` says, and at the last one.
bool is_log_due(const Progress& progress, const Every& every);

/// Measures throughput and the share of time spent waiting for data between two lines of the log, and leaves them in
/// the run's events.
PrioritizedHook timer_hook(const Every& every);

/// Averages the parameters as post-local SGD does: after steps, and before evaluations and checkpoints, which also make
/// the state of the optimizer that of rank 0. Collective.
/// @param averages  outlives the hook
PrioritizedHook post_local_hook(parallel::PostLocalSgd& averages);

/// Puts the memory and the model FLOPs utilization of the steps since the last line of the log into the run's events.
/// The operations of a step are three times those of the forward, which are counted in the first step of this start.
/// @param peak_flops  operations per second of one device; 0 = no utilization; none = measured at the first line
/// @param type        of the products that are measured
PrioritizedHook utilization_hook(const Every& every, std::optional<double> peak_flops, c10::ScalarType type);

/// Reports a "ranks" record with mean, least and greatest value over ranks of what each of them put with
/// EventStorage::put_of_rank since the last line of the log, times of steps among it. The numbers travel while training
/// continues, so the record comes some steps late; ranks with other names than the others' end the run together.
/// Collective.
PrioritizedHook rank_events_hook(const Every& every, const mpi::Communicator& world);

/// Reports a "train" record when is_log_due: progress, loss, lr, and what other hooks left in the run's events.
/// @param window  number of latest steps over which the loss is averaged; >= 1
PrioritizedHook log_hook(const Every& every, std::int64_t window = 1);

/// Keeps tables, images and histograms in the run's events and shows the events to `visit` after each step and after
/// training, behind those who leave them there. May be on one rank alone.
PrioritizedHook artifacts_hook(const std::function<void(EventStorage&)>& visit);

/// Everything a run needs to continue. Collective; complete on ranks that write, empty elsewhere.
using CaptureState = std::function<checkpoints::Archive(bool is_writer)>;

/// Saves when steps, epochs or seconds are due, and at the end. Collective.
/// @param directory  the run's checkpoint folder
/// @param lease      of this folder, on rank 0; null = the hook takes it
/// @throws CheckpointError  another run writes there, or nothing can be written there; on every rank
PrioritizedHook checkpoint_hook(const SavingSettings& settings, const mpi::Communicator& world, std::string directory,
                                std::shared_ptr<checkpoints::Lease> lease, CaptureState capture);

/// Copies the state into the memory of the first host every ckpt.memory_every steps, and keeps the latest two copies
/// (memory_copies.hpp). The first copy that fails is a warning. When the run has ended without a failure, the copies
/// are removed, also those of an earlier start if this one makes none. After checkpoint_hook. Collective.
/// @param directory  the run's checkpoint folder
/// @param run_id     gives the id of the run when training begins
PrioritizedHook memory_copies_hook(const SavingSettings& settings, std::string directory,
                                   std::function<std::string()> run_id, CaptureState capture);

/// Has rank 0 look for the files STOP (save and end) and SAVE (save and continue) in the run's folder, at most every
/// 0.2 s, and removes them when the checkpoint is committed; those that were there before the run are removed with a
/// warning. After checkpoint_hook, which does the saving.
PrioritizedHook request_file_hook(std::string run_directory);

/// Seconds that saving and stopping may take: 2 x the longest save + the longest step (with what evaluation adds
/// to it) + a margin of 5 % of the time limit, at most 30 s. While no save has been measured the margin is twice that.
double stop_lead(double limit_seconds, const Saves& saves, double longest_step_seconds);

/// The warning for a run that must stop in less time than its longest save has taken: "12.0 s left of ..., but ...";
/// empty while there is enough.
std::string grace_warning(double seconds_left, const Saves& saves, const std::string& source);

/// Asks for a stop when less than stop_lead is left; for rank 0. Does not count what checkpoints take as a step's time:
/// It is called before checkpoint_hook and after the others. Says grace_warning once when a stop was requested, by
/// whomever.
PrioritizedHook time_limit_hook(TimeLimit limit);

/// Keeps the digest of the teacher's weights in checkpoints: a run resumes with the same teacher.
PrioritizedHook teacher_hook(const std::string& digest);

/// States rank 0 after training where the time of its steps went.
PrioritizedHook ddp_report_hook(const std::function<void(const parallel::DdpReport&)>& on_report);

}  // namespace lockstep::engine
