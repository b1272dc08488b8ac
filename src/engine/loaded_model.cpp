// SPDX-License-Identifier: BSD-3-Clause
#include "engine/loaded_model.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <cmath>
#include <optional>
#include <utility>

#include "checkpoints/store/store.hpp"
#include "engine/evaluation/evaluation_counts.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/run_splits.hpp"
#include "engine/state/stored_model.hpp"

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
                    std::to_string(published->classes) + "; use other data, or data.unlabeled=true");
  }
  if (task.classes != published->classes || !published->class_names.empty()) task.class_names = published->class_names;
  task.classes = published->classes;
  return task;
}

void require_known_classes(const Task& of_data, const std::optional<Task>& stored) {
  if (!stored || of_data.classes <= stored->classes) return;
  throw DataError("the data have " + std::to_string(of_data.classes) + " classes, but the model has " +
                  std::to_string(stored->classes) + "; use the data of the training, or data.unlabeled=true");
}

/// The classes of the data get the numbers that they had in the training. Versions that did not store the names in the
/// data kept those of data.class_names only, in the order of the data.
void choose_class_order(data::OpenOptions& options, const Task& stored, const Section& data) {
  const bool has_own_names = data.has("class_names") && !data.text("class_names").empty();
  if (stored.class_ids.empty() && has_own_names) return;
  options.class_order = stored.class_ids.empty() ? stored.class_names : stored.class_ids;
  options.class_names = stored.class_names;
}

}  // namespace

LoadedModel load_model(const mpi::Communicator& world, const Sections& sections, const Registry& registry,
                       const std::string& checkpoint, Purpose purpose, const std::string& split) {
  const EvalSettings eval = agreed(world, [&] {
    if (checkpoint.empty() && sections.at("init").text("from").empty()) {
      throw ConfigError("no weights are given; use --from with the folder of a run, or init.from with a file");
    }
    return EvalSettings::from(sections.at("eval"));
  });
  ReadModel read;
  if (!checkpoint.empty()) read = read_model(world, checkpoint, eval);
  data::OpenOptions options = open_options(sections, registry);
  options.is_evaluation = true;
  options.used = used_splits({split.empty() ? eval.split.value : split});
  if (read.task) choose_class_order(options, *read.task, sections.at("data"));
  std::optional<Task> published;
  if (checkpoint.empty()) published = published_task(world, sections);
  if (published) options.class_order = published->class_names;
  data::Splits splits = open_splits(world, sections.at("data"), registry, options, read.statistics);
  const Task task = agreed(world, [&] {
    const Task of_data = splits.train->task();
    require_known_classes(of_data, read.task);
    return with_published_classes(model_task(of_data, read.task), published);
  });
  Resources resources = make_resources(sections, world, purpose);
  const bool is_loaded = !checkpoint.empty() || replaces_all_parameters(sections.at("init"));
  WrappedModel model =
      make_wrapped_model(resources, sections, registry, task, {.purpose = purpose, .is_loaded = is_loaded});
  if (checkpoint.empty()) {
    init_from(world, *model.wrapper, sections);
  } else {
    restore_model(world, *model.wrapper, read.archive);
  }
  return {.splits = std::move(splits),
          .resources = std::move(resources),
          .model = std::move(model),
          .task = task,
          .step = checkpoint.empty() ? 0 : read.archive.integer("/", "step"),
          .is_average = read.is_average,
          .source = checkpoint.empty() ? sections.at("init").text("from") : checkpoint};
}

Evaluation evaluate_loaded(LoadedModel& loaded, const Sections& sections, const Registry& registry) {
  const mpi::Communicator& world = loaded.resources.world;
  EvalSettings eval;
  const data::Dataset* dataset = nullptr;
  EvaluationCounts counts;
  world.all_or_throw([&] {
    eval = EvalSettings::from(sections.at("eval"));
    eval.limits.loader_threads = loaded.resources.loader_threads;
    dataset = &split_of(loaded.splits, eval.split);
    counts = {eval, *dataset, registry.meters, /*has_tables=*/false};
  });
  const EvaluationResult found = heard_by_peers(*loaded.resources.collectives, [&] {
    return counts.evaluate(world, *loaded.model.wrapper, *dataset, eval.limits);
  });
  if (found.count == 0 && std::isnan(found.mean_loss())) {
    throw_agreed(ExitCode::data, "eval.split = " + eval.split.value +
                                     ": no sample has a target, so that there is nothing to evaluate; reset "
                                     "data.unlabeled, or use `trainer predict`");
  }
  Evaluation result{.step = loaded.step,
                    .values = found.values(dataset->task().kind),
                    .count = found.count,
                    .is_average = loaded.is_average};
  world.all_or_throw([&] { result.numbers = counts.read().numbers; });
  if (loaded.splits.errors) {
    for (const auto& [rank, sample] : gather_bad_samples(world, *loaded.splits.errors)) {
      if (world.is_root()) log::warning("rank " + std::to_string(rank) + " replaces a sample: " + sample.reason);
    }
  }
  return result;
}

}  // namespace lockstep::engine
