// SPDX-License-Identifier: BSD-3-Clause
#include "engine/training_run.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <random>
#include <utility>

#include "checkpoints/store/checkpoint_index.hpp"
#include "core/text/text.hpp"
#include "data/source/given_arrays.hpp"
#include "data/stores/cache_files.hpp"
#include "engine/data_moments.hpp"
#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/resume/resume.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/memory_copies.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/rollout.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/setup/teacher.hpp"
#include "engine/state/device_copies.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::engine {

namespace {

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

/// The same on every rank; 64 bits of the system's entropy. Collective.
std::string new_run_id(const mpi::Communicator& world) {
  std::random_device entropy;
  return world.broadcast(fmt::format("{:08x}{:08x}", entropy(), entropy()));
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
  if (!has_metrics) return;
  std::shared_ptr<const data::Dataset> with;
  if (!eval.climatology.value.empty()) {
    with = agreed(run.world, [&] { return with_climatology(evaluated, eval.climatology); });
  }
  try_metrics(run, with ? *with : evaluated, eval.metrics, request.registry.meters);
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
  const bool is_endless = static_cast<double>(train.size()) > kMaxSteps;  // the program has the samples
  log::info(fmt::format("task {}; data {}{}; model {}: {} parameters", models::row_of(train.task().kind).name,
                        name_of("data"), is_endless ? "" : fmt::format(": {} training samples", train.size()),
                        name_of("model"), parameters));
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
  const std::string length = is_endless ? ""
                                        : fmt::format("{} steps of {} samples; ", run.progress.total_steps,
                                                      sections.at("train").integer("global_batch_size"));
  log::info(fmt::format("{}optimizer {}, precision {}, strategy {}, backend {}, device {}", length,
                        optimizer_names(run.updates.parts), precision,
                        chosen_strategy(strategy, run.resources.world.size()).name, run.resources.collectives->name(),
                        run.resources.device.is_cpu() ? "cpu" : "cuda"));
}

/// Writes statistics.json into the folder of the run.
void keep_statistics(const std::string& checkpoint_directory, const std::string& json) {
  const std::string path = (std::filesystem::path(checkpoint_directory).parent_path() / "statistics.json").string();
  if (!data::write_whole(path, {json, "\n"})) log::warning(path + " cannot be written; training continues without it");
}

}  // namespace

TrainingRun::TrainingRun(const mpi::Communicator& world, TrainRequest request)
    : world_(world),
      request_(std::move(request)),
      resume_(agreed(world, [&] { return ResumeSettings::from(request_.sections); })) {
  const Sections& sections = request_.sections;
  data::Splits splits = open_training_data(world_, request_, resume_);
  Resources resources = make_resources(sections, world_);
  const bool is_loaded = replaces_all_parameters(sections.at("init")) && !resume_.restore.is_partial;
  std::string statistics;
  const Task task = training_task(world_, sections.at("model"), *splits.train, &statistics);
  const bool keeps_files = world_.is_root() && !request_.checkpoint_directory.empty();
  if (keeps_files && !statistics.empty()) keep_statistics(request_.checkpoint_directory, statistics);
  world_.all_or_throw([&] { splits.train = trained_dataset(splits.train, sections); });
  composition_ = std::make_unique<Composition>(std::move(resources), sections, request_.registry, task,
                                               ModelRequest{.is_loaded = is_loaded});
  trainer_ = std::make_unique<Trainer>(sections, *composition_, std::move(splits), request_.registry);
  RunView& view = trainer_->view();
  view.origin.environment_json = request_.environment_json;
  view.extra = RunSettings::from(sections.at("run")).extra;
  if (request_.reporter) trainer_->add_reporter(request_.reporter);
  add_hooks();
  const std::string teacher =
      attach_teacher(composition_->resources, view.wrapper, sections, request_.registry, *view.data.splits().train);
  if (!teacher.empty()) trainer_->add_hook(teacher_hook(teacher));
  log_start(trainer_->run(), sections);
  restore_or_init();
}

Outcome TrainingRun::run() {
  RunView& view = trainer_->view();
  world_.all_or_throw([&] { data::require_readable(*view.data.splits().train); });
  return heard_by_peers(view.collectives, [&] {
    try_evaluation(view, request_);
    return trainer_->train();
  });
}

/// The hooks that every run has, those that the configuration names, and those of the program.
void TrainingRun::add_hooks() {
  Trainer& trainer = *trainer_;
  const mpi::Communicator& world = world_;
  const TrainRequest& request = request_;
  const Sections& sections = request.sections;
  const LogSettings log = agreed(world, [&] { return LogSettings::from(sections.at("log")); });
  SavingSettings saving = agreed(world, [&] { return SavingSettings::from(sections.at("ckpt")); });
  saving.allows_nonfinite = sections.at("resume").boolean("allow_nonfinite");
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
  trainer.add_hook(schedule_hook(resume_.schedule));
  trainer.add_hook(agreed(world, [&] { return average_hook(EmaSettings::from(sections.at("ema"))); }));
  trainer.add_hook(train_meters_hook(cited_texts(sections.at("train"), "metrics"), request.registry.meters));
  trainer.add_hook(agreed(world, [&] { return evaluate_hook(sections, request.registry.meters); }));
  if (trainer.view().data.splits().errors) trainer.add_hook(data_errors_hook(log.every, run.dir));
  trainer.add_hook(timer_hook(log.every));
  trainer.add_hook(utilization_hook(log.every, run.peak_flops, trainer.run().model.products()));
  trainer.add_hook(log_hook(log.every, log.window));
  if (request.on_artifacts) trainer.add_hook(artifacts_hook(request.on_artifacts));
  if (!request.checkpoint_directory.empty()) {
    trainer.add_hook(checkpoint_hook(
        saving, world, request.checkpoint_directory, request.lease,
        [&trainer, config_ini = request.config_ini, parts = CapturedParts{saving.has_optimizer, saving.has_schedule},
         copies = std::make_shared<DeviceCopies>()](bool is_writer) {
          return capture(trainer, config_ini, is_writer, parts, copies.get());
        }));
    const bool has_copies =
        !text_of_root(world, [&] { return noted_memory_folder(request.checkpoint_directory); }).empty();
    if (saving.memory_every != 0 || has_copies) {
      trainer.add_hook(memory_copies_hook(
          saving, request.checkpoint_directory, [&trainer] { return trainer.view().origin.run_id; },
          [&trainer, config_ini = request.config_ini, copies = std::make_shared<DeviceCopies>()](bool is_writer) {
            return capture(trainer, config_ini, is_writer, {}, copies.get());
          }));
    }
    if (request.reads_request_files) trainer.add_hook(request_file_hook(run.dir));
  }
  if (request.time_limit) trainer.add_hook(time_limit_hook(*request.time_limit));
  if (trainer.view().wrapper.options().reports_times) trainer.add_hook(ddp_report_hook(request.on_report));
  add_all([&] { return make_hooks(sections, request.registry.hooks); });
  for (PrioritizedHook& hook : request_.hooks) trainer.add_hook(std::move(hook));
}

/// Restores from a checkpoint, from given parameters, or from the initial ones.
void TrainingRun::restore_or_init() {
  Trainer& trainer = *trainer_;
  RunOrigin& origin = trainer.view().origin;
  const std::string& directory = request_.checkpoint_directory;
  const bool has_directory = !directory.empty();
  const auto restored = has_directory ? load_or_resume(trainer, resume_, directory, request_.config_ini) : std::nullopt;
  if (origin.run_id.empty()) origin.run_id = new_run_id(world_);
  if (has_directory) {
    limit_starts(world_, directory, trainer.progress().step, request_.restarts, resume_.max_starts);
    trainer.set_roll_back([this] { return roll_back(); });
  }
  if (!restored) init_from(world_, trainer.view().wrapper, request_.sections);
  if (request_.on_start) request_.on_start(trainer.progress().step, restored);
}

/// Whether there was a checkpoint; then the run stands there.
bool TrainingRun::roll_back() {
  const std::string& directory = request_.checkpoint_directory;
  const std::string newest = text_of_root(world_, [&] { return checkpoints::latest(directory).value_or(""); });
  if (newest.empty()) return false;
  restore("must");
  return true;
}

void TrainingRun::restore(const std::string& source) {
  ResumeSettings resume = resume_;
  resume.source = source;
  resume.admits_memory = false;
  const auto restored = load_or_resume(*trainer_, resume, request_.checkpoint_directory);
  if (request_.on_start) request_.on_start(trainer_->progress().step, restored);
}

void TrainingRun::resume(const std::string& source) {
  if (trainer_->view().saves.finish) trainer_->view().saves.finish();
  restore(source);
  trainer_->resume();
}

}  // namespace lockstep::engine
