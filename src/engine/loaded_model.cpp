// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loaded_model.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <cmath>
#include <optional>
#include <utility>

#include "checkpoints/store/store.hpp"
#include "engine/evaluation/bad_samples.hpp"
#include "engine/evaluation/class_numbers.hpp"
#include "engine/evaluation/confusion_count.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/setup/heard_by_peers.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/published_task.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/setup/stored_data.hpp"
#include "engine/state/average.hpp"
#include "engine/state/stored_task.hpp"

namespace lockstep::engine {

namespace {

/// A checkpoint with one model: the trained one, or its average.
struct ReadModel {
  checkpoints::Archive archive;
  std::optional<Task> task;
  std::optional<data::ChannelStatistics> statistics;
  bool is_average = false;
};

ReadModel read_model(const mpi::Communicator& world, const std::string& checkpoint, const EvalSettings& eval) {
  ReadModel read;
  world.all_or_throw([&] {
    const checkpoints::Archive archive = checkpoints::read(checkpoint);
    read.task = stored_task(archive);
    read.statistics = stored_statistics(archive);
    read.is_average = takes_average(archive, eval.weights.value, eval.weights.cite);
    read.archive = with_model(archive, read.is_average, AverageType::of_trained);
  });
  return read;
}

/// The task of the data with the classes of a published model.
Task with_published_classes(Task task, const std::optional<Task>& published) {
  if (!published) return task;
  if (task.classes > published->classes && published->classes > 0) {
    throw DataError("the data have " + std::to_string(task.classes) + " classes, but the model has " +
                    std::to_string(published->classes) + "; use other data, or data.unlabelled=true");
  }
  if (task.classes != published->classes || !published->class_names.empty()) task.class_names = published->class_names;
  task.classes = published->classes;
  return task;
}

void require_known_classes(const Task& of_data, const std::optional<Task>& stored) {
  if (!stored || of_data.classes <= stored->classes) return;
  throw DataError("the data have " + std::to_string(of_data.classes) + " classes, but the model has " +
                  std::to_string(stored->classes) + "; use the data of the training, or data.unlabelled=true");
}

/// The classes of the data get the numbers that they had in the training. Versions that did not store the names in the
/// data kept those of data.class_names only, in the order of the data.
void choose_class_order(data::OpenOptions& options, const Task& stored, const Section& data) {
  const bool has_own_names = data.has("class_names") && !data.text("class_names").empty();
  if (stored.class_ids.empty() && has_own_names) return;
  options.class_order = stored.class_ids.empty() ? stored.class_names : stored.class_ids;
  options.class_names = stored.class_names;
}

void restore_defaults(Sections& sections, const std::string& name, const KeySpecs& specs,
                      const std::vector<std::string>& kept) {
  Section fresh = Section::with_defaults(name, specs);
  for (const std::string& key : kept) {
    const Section& given = sections.at(name);
    if (given.has(key) && !given.is_default(key)) fresh.set(key, given.text(key), given.origin(key));
  }
  sections[name] = std::move(fresh);
}

}  // namespace

LoadedModel load_model(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                       const std::string& checkpoint, const std::string& split) {
  EvalSettings eval;
  world.all_or_throw([&] {
    eval = EvalSettings::from(sections.at("eval"));
    if (checkpoint.empty() && sections.at("init").text("from").empty()) {
      throw ConfigError("no weights are given; use --from with the folder of a run, or init.from with a file");
    }
  });
  ReadModel read;
  if (!checkpoint.empty()) read = read_model(world, checkpoint, eval);
  data::OpenOptions options = open_options(sections, registry);
  options.refuses_unknown_keys = checkpoint.empty();  // the configuration of a run can contain keys of another source
  options.is_evaluation = true;
  options.used = used_splits({split.empty() ? eval.split.value : split});
  if (read.task) choose_class_order(options, *read.task, sections.at("data"));
  std::optional<Task> published;
  if (checkpoint.empty()) published = published_task(world, sections);
  if (published) options.class_order = published->class_names;
  LoadedModel loaded;
  loaded.splits = open_splits(world, sections.at("data"), registry, options, read.statistics);
  world.all_or_throw([&] {
    const Task of_data = loaded.splits.train->task();
    require_known_classes(of_data, read.task);
    loaded.task = with_published_classes(model_task(of_data, read.task), published);
  });
  loaded.strategy = make_strategy(sections, world, registry);
  const bool replaces_all = !checkpoint.empty() || replaces_all_parameters(sections.at("init"));
  prepare_for_loading(*loaded.strategy, loaded.task, replaces_all);
  if (checkpoint.empty()) {
    const InitDifferences skipped = init_from(*loaded.strategy, sections);
    if (!skipped.empty()) {
      log::warning("init.partial skips " + std::to_string(skipped.size()) + " tensors" + table_of(skipped));
    }
    loaded.source = sections.at("init").text("from");
    return loaded;
  }
  restore_model(*loaded.strategy, read.archive);
  loaded.step = read.archive.integer("/", "step");
  loaded.is_average = read.is_average;
  loaded.source = checkpoint;
  return loaded;
}

Sections without_training(Sections sections, const Registry& registry, int world_size) {
  const KeySpecs specs = all_keys(registry);
  for (const char* name : {"strategy", "ddp", "ema", "optim", "loss"}) restore_defaults(sections, name, specs, {});
  restore_defaults(sections, "train", specs, {"precision", "param_dtype"});
  sections.at("train").set("global_batch_size", std::to_string(world_size), "derived");
  return sections;
}

Evaluation evaluate_loaded(const mpi::Communicator& world, LoadedModel& loaded, const Sections& sections,
                           const Registry& registry) {
  EvalSettings eval;
  const data::Dataset* dataset = nullptr;
  metrics::Meters meters;
  world.all_or_throw([&] {
    eval = EvalSettings::from(sections.at("eval"));
    eval.limits.loader_threads = loaded.strategy->loader_threads();
    dataset = &split_of(loaded.splits, eval.split);
    meters = make_eval_meters(eval.metrics, dataset->task(), registry.meters);
  });
  const Task task = dataset->task();
  ConfusionCount confusion(eval.is_per_class ? ConfusionCount::classes_of(task, true) : 0);
  const auto notify = [&](StepEvent event, const LastBatch& last) {
    if (event == StepEvent::forward) confusion.add(last);
  };
  const EvaluationResult found = heard_by_peers(loaded.strategy->collectives(), [&] {
    const EvaluationResult result = evaluate(world, loaded.strategy->model(), *dataset, eval.limits, meters, notify);
    confusion.sum_over_ranks(loaded.strategy->collectives());
    return result;
  });
  if (found.count == 0 && std::isnan(found.mean_loss())) {
    throw_agreed(ExitCode::data, "eval.split = " + eval.split.value +
                                     ": no sample has a target, so that there is nothing to evaluate; reset "
                                     "data.unlabelled, or use `trainer predict`");
  }
  Evaluation result{
      .step = loaded.step, .values = found.values(task.kind), .count = found.count, .is_average = loaded.is_average};
  world.all_or_throw([&] {
    auto readings = meters.read();
    result.numbers = std::move(readings.numbers);
    if (!eval.is_per_class) return;
    std::erase_if(readings.tables, [](const Table& table) { return table.name == "confusion"; });
    if (auto table = confusion.table()) readings.tables.push_back(std::move(*table));
    for (const Table& table : readings.tables) {
      const auto numbers = class_numbers(table, task.class_names, static_cast<std::size_t>(task.classes));
      result.numbers.insert(result.numbers.end(), numbers.begin(), numbers.end());
    }
  });
  if (loaded.splits.errors) {
    for (const auto& [rank, sample] : gather_bad_samples(world, *loaded.splits.errors)) {
      if (world.is_root()) log::warning("rank " + std::to_string(rank) + " replaces a sample: " + sample.reason);
    }
  }
  return result;
}

Evaluation evaluate_checkpoint(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                               const std::string& checkpoint) {
  LoadedModel loaded = load_model(world, sections, registry, checkpoint);
  return evaluate_loaded(world, loaded, sections, registry);
}

}  // namespace lockstep::engine
