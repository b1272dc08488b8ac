// SPDX-License-Identifier: BSD-3-Clause
#include "engine/session.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <random>

#include "checkpoints/store/checkpoint_index.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/text.hpp"
#include "data/stores/cache_files.hpp"
#include "engine/data_moments.hpp"
#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/loop/trainer.hpp"
#include "engine/resume/resume.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/rollout.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/setup/teacher.hpp"
#include "engine/state/device_copies.hpp"
#include "engine/state/resume_settings.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::engine {

namespace {

namespace fs = std::filesystem;

/// The training split and, unless nothing is evaluated, the one that eval.split names. Classes have the order of a
/// published model that contains all of them and keeps its head.
data::Splits open_training_data(const mpi::Communicator& world, const TrainRequest& request,
                                const ResumeSettings& resume) {
  const Sections& sections = request.sections;
  const EvalSettings eval = agreed(world, [&] { return EvalSettings::from(sections.at("eval")); });
  data::OpenOptions options = open_options(sections, request.registry);
  options.used = used_splits({eval.is_never() ? "train" : eval.split.value});
  const std::optional<Task> published = published_task(world, sections);
  if (published && sections.at("init").text("head") == "keep") {
    options.class_order = published->class_names;
    options.requires_class_order = false;
  }
  const auto statistics = resumed_statistics(world, resume, request.checkpoint_directory);
  data::Splits splits = open_splits(world, sections.at("data"), request.registry, options, statistics);
  world.all_or_throw([&] {
    if (splits.train->size() < 1) throw DataError(sections.at("data").cite("name") + ": there are no samples to train");
    if (eval.is_never() || split_of(splits, eval.split).size() > 0) return;
    throw DataError(eval.split.cite + ": the split '" + eval.split.value + "' has no samples");
  });
  return splits;
}

/// `from` itself if it is a checkpoint, else the newest one in it or in its folder ckpt.
std::string find_checkpoint(const std::string& from) {
  if (!fs::exists(from)) throw CheckpointError(from, "does not exist");
  if (const auto newest = checkpoints::latest_of_run(from)) return *newest;
  const bool is_checkpoint = fs::is_regular_file(from) || fs::exists(from + "/state.h5");
  if (is_checkpoint) return from;
  throw CheckpointError(from, "contains no checkpoint (no folder step-000000000000, neither here nor in ckpt/)");
}

/// Whether there was a checkpoint; then the run stands there.
bool roll_back(Trainer& trainer, const TrainRequest& request, ResumeSettings resume) {
  const mpi::Communicator& world = trainer.view().world;
  const std::string newest =
      text_of_root(world, [&] { return checkpoints::latest(request.checkpoint_directory).value_or(""); });
  if (newest.empty()) return false;
  resume.source = "must";
  const auto restored = load_or_resume(trainer, resume, request.checkpoint_directory);
  if (request.on_start) request.on_start(trainer.progress().step, restored);
  return true;
}

/// The hooks that every run has, those that the configuration names, and those of the program.
void add_hooks(Trainer& trainer, const mpi::Communicator& world, TrainRequest& request,
               const std::string& schedule_policy) {
  const Sections& sections = request.sections;
  const LogSettings log = agreed(world, [&] { return LogSettings::from(sections.at("log")); });
  SavingSettings saving = agreed(world, [&] { return SavingSettings::from(sections.at("ckpt")); });
  if (saving.best.metric.value == "auto") {
    saving.best.metric.value = models::row_of(trainer.view().data.splits().train->task().kind).best_metric;
  }
  const RunSettings run = RunSettings::from(sections.at("run"));
  const auto add_all = [&](const auto& make) {
    for (PrioritizedHook& hook : agreed(world, make)) trainer.add_hook(std::move(hook));
  };
  if (const auto& post_local = trainer.run().model.post_local)
    trainer.add_hook(post_local_hook(post_local->averages()));
  trainer.add_hook(rank_events_hook(log.every, world));
  add_all([&] { return finetune_hooks(FinetuneSettings::from(sections.at("finetune"))); });
  trainer.add_hook(schedule_hook(schedule_policy));
  trainer.add_hook(agreed(world, [&] { return average_hook(EmaSettings::from(sections.at("ema"))); }));
  trainer.add_hook(train_meters_hook(cited_texts(sections.at("train"), "metrics"), request.registry.meters));
  trainer.add_hook(agreed(world, [&] { return evaluate_hook(sections, request.registry.meters); }));
  if (trainer.view().data.splits().errors) trainer.add_hook(data_errors_hook(log.every, run.dir));
  trainer.add_hook(timer_hook(log.every));
  trainer.add_hook(utilization_hook(log.every, run.peak_flops, trainer.run().model.products()));
  trainer.add_hook(log_hook(log.every, log.window));
  if (request.on_artifacts) trainer.add_hook(artifacts_hook(request.on_artifacts));
  trainer.add_hook(checkpoint_hook(
      saving, world, request.checkpoint_directory, request.lease,
      [&trainer, config_ini = request.config_ini, parts = CapturedParts{saving.has_optimizer, saving.has_schedule},
       copies = std::make_shared<DeviceCopies>()](bool is_writer) {
        return capture(trainer, config_ini, is_writer, parts, copies.get());
      }));
  trainer.add_hook(request_file_hook(run.dir));
  if (request.time_limit) trainer.add_hook(time_limit_hook(*request.time_limit));
  if (trainer.view().wrapper.options().reports_times) trainer.add_hook(ddp_report_hook(request.on_report));
  add_all([&] { return make_hooks(sections, request.registry.hooks); });
  for (PrioritizedHook& hook : request.hooks) trainer.add_hook(std::move(hook));
}

/// The same on every rank; 64 bits of the system's entropy. Collective.
std::string new_run_id(const mpi::Communicator& world) {
  std::random_device entropy;
  return world.broadcast(fmt::format("{:08x}{:08x}", entropy(), entropy()));
}

/// Restores from a checkpoint, from given parameters, or from the initial ones.
void restore_or_init(Trainer& trainer, const mpi::Communicator& world, const TrainRequest& request,
                     const ResumeSettings& resume) {
  RunOrigin& origin = trainer.view().origin;
  const auto restored = load_or_resume(trainer, resume, request.checkpoint_directory);
  if (origin.run_id.empty()) origin.run_id = new_run_id(world);
  limit_starts(world, request.checkpoint_directory, trainer.progress().step, request.restarts, resume.max_starts);
  if (!restored) init_from(world, trainer.view().wrapper, request.sections);
  if (request.on_start) request.on_start(trainer.progress().step, restored);
}

/// Evaluates one sample.
void evaluate_one(RunView& run, const data::Dataset& evaluated, metrics::Meters meters = {}) {
  evaluate(run.world, run.wrapper, evaluated, {.batch_size = 1, .max_batches = 1}, meters, {});
}

/// @throws ConfigError  the model does not accept the evaluated samples, which have another shape than those of the
///                      training
void try_evaluated_shape(RunView& run, const data::Dataset& evaluated, const Cited<std::string>& split,
                         const std::vector<std::int64_t>& trained) {
  const std::vector<std::int64_t> shape = evaluated.task().sample_shape;
  try {
    evaluate_one(run, evaluated);
  } catch (const ConfigError& error) {
    if (shape == trained) throw;
    const std::string sentence = fmt::format(
        "the samples of {} have the shape {}, those of the training {}, and the model does not accept "
        "them; set data.val_transform, for example with the resize of data.transform ({})",
        split.value, shape_text(shape), shape_text(trained), error.what());
    if (error.is_agreed()) throw_agreed(ExitCode::configuration, sentence);
    throw ConfigError(sentence);
  }
}

/// @throws ConfigError  the metrics read outputs or targets that nobody provides or that do not fit them
void try_metrics(RunView& run, const data::Dataset& evaluated, const MeterNames& metrics,
                 const std::vector<metrics::MeterRow>& rows) {
  metrics::Meters meters = agreed(run.world, [&] { return make_eval_meters(metrics, evaluated.task(), rows); });
  try {
    evaluate_one(run, evaluated, std::move(meters));
  } catch (const Error& error) {
    const bool is_input = error.exit_code() == ExitCode::configuration || error.exit_code() == ExitCode::data;
    if (!is_input) throw;
    const std::string sentence = metrics.cite + ": " + error.what();
    if (error.is_agreed()) throw_agreed(ExitCode::configuration, sentence);
    throw ConfigError(sentence);
  }
}

/// Finds before the first step what an evaluation with other samples or metrics than those of the task would find after
/// it.
void try_evaluation(RunView& run, const TrainRequest& request) {
  const EvalSettings eval = EvalSettings::from(request.sections.at("eval"));
  if (eval.is_never()) return;
  const data::Dataset& evaluated = split_of(run.data.splits(), eval.split);
  const std::vector<std::int64_t> trained = run.data.splits().train->task().sample_shape;
  const bool has_metrics = !eval.metrics.value.empty();
  if (!has_metrics && evaluated.task().sample_shape == trained) return;
  try_evaluated_shape(run, evaluated, eval.split, trained);
  if (has_metrics) try_metrics(run, evaluated, eval.metrics, request.registry.meters);
}

/// 206922 as "206.9 K", 27000000 as "27.0 M".
std::string rounded(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (count >= 1000000000) return fmt::format("{:.1f} G", number / 1e9);
  if (count >= 1000000) return fmt::format("{:.1f} M", number / 1e6);
  return count >= 10000 ? fmt::format("{:.1f} K", number / 1e3) : std::to_string(count);
}

/// The name of the optimizer, or "generator: adam, discriminator: sgd".
std::string optimizer_names(optim::OptimWrapperDict& parts) {
  std::string text;
  for (auto& [part, wrapper] : parts) {
    text += (text.empty() ? "" : ", ") + (part.empty() ? "" : part + ": ") + wrapper.optimizer().rule().name;
  }
  return text;
}

/// The lines on the console that describe a run before it starts.
void log_start(const Run& run, const Sections& sections) {
  const data::Dataset& train = *run.data.splits().train;
  const auto name_of = [&sections](const char* section) { return sections.at(section).text("name"); };
  const std::string parameters = rounded(run.model.parameter_count);
  log::info(fmt::format("task {}; data {}: {} training samples; model {}: {} parameters",
                        models::row_of(train.task().kind).name, name_of("data"), train.size(), name_of("model"),
                        parameters));
  std::int64_t trained = 0;
  for (const at::Tensor& parameter : run.model.wrapper->model().parameters()) {
    if (parameter.requires_grad()) trained += parameter.numel();
  }
  if (sections.at("finetune").text("train") != "all") {
    log::info(fmt::format("finetune.train: {} of {} parameters are trained", rounded(trained), parameters));
  }
  const std::string of_parameters = run.model.param_dtype.text();
  const std::string precision = run.model.precision.name.value +
                                (of_parameters.empty() ? "" : " (" + of_parameters + ")") +
                                (run.resources.tf32 == "convolutions" ? " (convolutions in TF32)" : "");
  const StrategySettings strategy = StrategySettings::from(sections.at("strategy"));
  log::info(fmt::format("{} steps of {} samples; optimizer {}, precision {}, strategy {}, backend {}, device {}",
                        run.progress.total_steps, sections.at("train").integer("global_batch_size"),
                        optimizer_names(run.updates.parts), precision,
                        chosen_strategy(strategy, run.resources.world.size()).name, run.resources.collectives->name(),
                        run.resources.device.is_cpu() ? "cpu" : "cuda"));
}

/// Why a run of this configuration ends at a checkpoint, and how it is made longer; empty = it does not end there.
std::string end_at(const checkpoints::Archive& groups, const Sections& sections, const RunBounds& bounds,
                   const RestoreOptions& restored) {
  const bool by_steps = bounds.max_steps > 0 && groups.integer("/", "step") >= bounds.max_steps;
  const bool by_epochs =
      !restored.resets_sampler && bounds.max_epochs > 0 && groups.integer("/", "epoch") >= bounds.max_epochs;
  if (by_steps || by_epochs) {
    return "train.max_steps or train.max_epochs ends the run there; nothing was changed. To train longer, raise them";
  }
  const std::string stopped = restored.is_partial ? "" : early_stop_in(groups, sections);
  if (stopped.empty()) return "";
  return stopped + "; nothing was changed. To train longer, change the options of this hook";
}

/// Writes statistics.json into the folder of the run.
void keep_statistics(const std::string& checkpoint_directory, const std::string& json) {
  const std::string path = (std::filesystem::path(checkpoint_directory).parent_path() / "statistics.json").string();
  if (!data::write_whole(path, {json, "\n"})) log::warning(path + " cannot be written; training continues without it");
}

}  // namespace

Outcome train(const mpi::Communicator& world, TrainRequest request) {
  const Sections& sections = request.sections;
  const ResumeSettings resume = agreed(world, [&] { return ResumeSettings::from(sections); });
  data::Splits splits = open_training_data(world, request, resume);
  Resources resources = make_resources(sections, world);
  const bool is_loaded = replaces_all_parameters(sections.at("init")) && !resume.restore.is_partial;
  std::string statistics;
  const Task task = training_task(world, sections.at("model"), *splits.train, &statistics);
  if (world.is_root() && !statistics.empty()) keep_statistics(request.checkpoint_directory, statistics);
  world.all_or_throw([&] { splits.train = trained_dataset(splits.train, sections); });
  Composition made(std::move(resources), sections, request.registry, task, {.is_loaded = is_loaded});
  Trainer trainer(sections, made, std::move(splits), request.registry);
  RunView& view = trainer.view();
  view.origin.environment_json = request.environment_json;
  view.extra = RunSettings::from(sections.at("run")).extra;
  trainer.add_reporter(request.reporter);
  add_hooks(trainer, world, request, resume.schedule);
  const std::string teacher =
      attach_teacher(made.resources, view.wrapper, sections, request.registry, *view.data.splits().train);
  if (!teacher.empty()) trainer.add_hook(teacher_hook(teacher));
  log_start(trainer.run(), sections);
  restore_or_init(trainer, world, request, resume);
  trainer.set_roll_back([&] { return roll_back(trainer, request, resume); });
  return heard_by_peers(view.collectives, [&] {
    try_evaluation(view, request);
    return trainer.train();
  });
}

void request_stop() noexcept { RunRequests::stop(); }

std::vector<std::string> reported_metrics() { return models::reported_metrics(); }

std::optional<std::string> finished_at(const mpi::Communicator& world, const Sections& sections,
                                       const std::string& checkpoint) {
  RunBounds bounds;
  RestoreOptions restored;
  world.all_or_throw([&] {
    bounds = RunBounds::from(sections.at("train"));
    restored = ResumeSettings::from(sections).restore;
  });
  std::string finished;
  if (world.is_root()) {
    try {
      const checkpoints::Archive groups = checkpoints::read_groups(checkpoint);
      const std::string end = end_at(groups, sections, bounds, restored);
      if (!end.empty()) {
        checkpoints::verify(checkpoint);
        finished = checkpoint + " is at step " + std::to_string(groups.integer("/", "step")) + ", and " + end;
      }
    } catch (const Error&) {  // the run that resumes says what is wrong with the checkpoint or the configuration
    }
  }
  finished = world.broadcast(finished);
  return finished.empty() ? std::nullopt : std::optional(finished);
}

StoredConfig stored_config(const mpi::Communicator& world, const std::string& from) {
  StoredConfig stored;
  world.all_or_throw([&] {
    if (!world.is_root()) return;
    stored.checkpoint = find_checkpoint(from);
    const checkpoints::Archive archive = checkpoints::read(stored.checkpoint);
    stored.config_ini = checkpoints::text_of(archive.array("/meta/config_ini"));
  });
  return {world.broadcast(stored.checkpoint), world.broadcast(stored.config_ini)};
}

}  // namespace lockstep::engine
