// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/evaluation_counts.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "engine/evaluation/rollout_ends.hpp"
#include "engine/setup/rollout.hpp"
#include "models/losses/task_table.hpp"

namespace lockstep::engine {

namespace {

constexpr std::int64_t kMaxCountedClasses = 100;
constexpr std::int64_t kMaxRequestedClasses = 4096;  // a matrix of 128 MiB

/// The kinds of task that have the outputs and targets of these built-in meters; others fit any kind.
const std::map<std::string, std::vector<TaskKind>>& kinds_of_meters() {
  using enum TaskKind;
  static const std::vector<TaskKind> of_classes = {classification, language, segmentation};
  static const std::vector<TaskKind> of_scores = {classification, language, segmentation, multilabel};
  static const std::map<std::string, std::vector<TaskKind>> kinds = {
      {"top_k", of_scores},
      {"confusion", of_classes},
      {"overlap", of_classes},
      {"perplexity", of_classes},
      {"calibration", of_classes},
      {"multilabel", {multilabel}},
      {"probability", {multilabel, regression}},
      {"regression", {regression}},
      {"regression_order", {regression}},
      {"auroc", of_scores},
      {"average_precision", of_scores},
      {"field", {regression}},
      {"persistence", {regression}},
      {"well", {regression}},
      {"spectral", {regression}},
      {"pdebench", {regression}},
      {"acc", {regression}},
  };
  return kinds;
}

/// @param text    NAME,option=value; a meter that reads other values than the main ones is not checked
/// @throws ConfigError  the outputs of the task do not fit the meter
void require_fit(const std::string& text, const Task& task, const std::string& cite) {
  const std::vector<std::string> parts = split_list(text, ',');
  const auto found = kinds_of_meters().find(parts.front());
  const bool reads_others = std::any_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.starts_with("output") || part.starts_with("target");
  });
  if (found == kinds_of_meters().end() || reads_others || task.kind == TaskKind::custom) return;
  const std::vector<TaskKind>& kinds = found->second;
  if (std::find(kinds.begin(), kinds.end(), task.kind) != kinds.end()) return;
  std::vector<std::string> names;
  for (const TaskKind kind : kinds) names.push_back(models::row_of(kind).name);
  throw ConfigError(cite + ": " + parts.front() + " does not fit the task, which is " + models::row_of(task.kind).name +
                    "; it is for: " + joined(names) +
                    ". Choose another metric, or set the options output and target of this one");
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The step of a number of a rollout, such as 3 of "rmse@3/t2m"; 0 = it is one of all steps together.
std::int64_t step_of_number(const std::string& name) {
  const std::size_t sign = name.find('@');
  if (sign == std::string::npos) return 0;
  return parse_integer(name.substr(sign + 1, name.find('/', sign) - sign - 1)).value_or(0);
}

/// The name of a number of a rollout among the numbers of an evaluation.
std::string name_of_rollout(const std::string& name) {
  return step_of_number(name) == 0 ? "rollout_" + name : name;  // one of all steps together
}

/// The first step of each channel at which the anomaly correlation is below 0.6, which is the usual limit of a useful
/// forecast: "rollout_acc_steps/z500". One more than the number of steps if there is none.
std::vector<std::pair<std::string, double>> skillful_steps(
    const std::vector<std::pair<std::string, double>>& of_rollout) {
  constexpr double kUseful = 0.6;
  constexpr std::string_view kNumber = "acc@";
  std::vector<std::pair<std::string, double>> steps;
  std::map<std::string, bool> has_ended;
  for (const auto& [name, number] : of_rollout) {  // steps in ascending order
    if (!name.starts_with(kNumber)) continue;
    const std::string result = "rollout_acc_steps" + name.substr(name.find('/'));
    const auto [ended, is_new] = has_ended.try_emplace(result, false);
    if (is_new) steps.emplace_back(result, 1);
    if (ended->second) continue;
    ended->second = !(number >= kUseful);
    if (!ended->second) std::ranges::find(steps, result, &decltype(steps)::value_type::first)->second += 1;
  }
  return steps;
}

}  // namespace

metrics::Meters make_meters(const MeterNames& names, const Task& task, const std::vector<metrics::MeterRow>& rows) {
  std::vector<metrics::Meter> meters;
  for (const std::string& text : names.value) {
    meters.push_back(metrics::make_meter(text, task, names.cite, rows));
    require_fit(text, task, names.cite);
  }
  // Lockstep's own values in the records "eval" and "epoch".
  static const std::set<std::string> reserved = {"loss", "accuracy", "count", "samples"};
  for (const metrics::Meter& meter : meters) {
    for (const metrics::Result& result : meter.results) {
      if (!reserved.contains(result.name)) continue;
      throw ConfigError(names.cite + ": a meter computes a value named '" + result.name +
                        "', which is the name of a value of Lockstep; rename it, or set the option prefix");
    }
  }
  try {
    return metrics::Meters(std::move(meters));
  } catch (const ConfigError& error) {
    throw ConfigError(names.cite + ": " + error.what());
  }
}

metrics::Meters make_eval_meters(const MeterNames& names, const Task& task,
                                 const std::vector<metrics::MeterRow>& rows) {
  if (!names.value.empty()) return make_meters(names, task, rows);
  const bool has_fields = task.kind == TaskKind::regression && !task.fields.axes.empty();
  const std::vector<std::string> usual =
      has_fields ? std::vector<std::string>{"field"} : models::row_of(task.kind).meters;
  return make_meters({usual, names.cite}, task, rows);
}

std::int64_t ConfusionCount::classes_of(const Task& task, bool is_per_class) {
  const bool is_small = task.classes >= 2 && task.classes <= (is_per_class ? kMaxRequestedClasses : kMaxCountedClasses);
  const bool is_wanted = task.kind == TaskKind::classification && task.predictions_per_sample == 1;
  return is_small && is_wanted ? task.classes : 0;
}

ConfusionCount::ConfusionCount(std::int64_t classes)
    : classes_(classes), words_(classes == 0 ? 0 : static_cast<std::size_t>(classes * classes + 1)) {}

void ConfusionCount::add(const LastBatch& batch) {
  if (words_.empty()) return;
  if (batch.outputs.is_empty() || !batch.batch->has_target()) {
    ++words_.back();
    return;
  }
  const at::Tensor& output = batch.output();
  const at::Tensor& target = batch.batch->target();
  if (output.dim() != 2 || output.size(1) != classes_ || target.dim() != 1 || target.size(0) != output.size(0) ||
      !at::isIntegralType(target.scalar_type(), false)) {
    ++words_.back();
    return;
  }
  const at::Tensor is_counted = target.ge(0).logical_and(target.lt(classes_));
  const at::Tensor places = (target * classes_ + output.argmax(1)).masked_select(is_counted).to(at::kCPU);
  for (std::int64_t i = 0; i < places.size(0); ++i) {
    ++words_[static_cast<std::size_t>(places.const_data_ptr<std::int64_t>()[i])];
  }
}

void ConfusionCount::sum_over_ranks(mpi::Collectives& collectives) {
  if (words_.empty()) return;
  collectives.all_reduce(words_.data(), words_.size(), DType::int64, mpi::ReduceOp::sum);
}

std::optional<Table> ConfusionCount::table() const {
  if (words_.empty() || words_.back() > 0) return std::nullopt;
  return Table{
      .name = "confusion", .columns = static_cast<std::size_t>(classes_), .values = {words_.begin(), words_.end() - 1}};
}

PredictedValues::PredictedValues(std::int64_t samples) : distance_((samples + kMaxSamples - 1) / kMaxSamples) {}

void PredictedValues::add(const LastBatch& last) {
  const auto& draws = last.given->draws();
  if (distance_ == 0 || !last.batch->has_target() || !last.batch->at(last.batch->target_key()).is<at::Tensor>()) return;
  const at::Tensor& output = last.outputs.main();
  const at::Tensor& target = last.batch->target();
  const auto samples = static_cast<std::int64_t>(draws.size());
  const bool is_of_samples = output.dim() > 0 && target.dim() > 0 && output.size(0) == samples &&
                             target.size(0) == samples && output.numel() == target.numel();
  if (!is_of_samples || output.numel() > samples * static_cast<std::int64_t>(kMaxOutputs)) return;
  for (std::int64_t i = 0; i < samples; ++i) {
    if (draws[static_cast<std::size_t>(i)].index % distance_ != 0) continue;
    metrics::append(kept_, metrics::samples_of(output[i].reshape({1, -1}), target[i].reshape({1, -1}),
                                               draws[static_cast<std::size_t>(i)].index));
  }
}

void PredictedValues::gather(mpi::Collectives& collectives) {
  if (distance_ > 0) kept_ = metrics::unpack(collectives.all_gather_any(metrics::pack(kept_)));
}

std::optional<Table> PredictedValues::table() const {
  if (kept_.size() == 0) return std::nullopt;
  Table table{.name = "predicted", .columns = 2 * kept_.output_columns};
  for (std::size_t i = 0; i < kept_.size(); ++i) {
    for (std::size_t j = 0; j < kept_.output_columns; ++j) {
      table.values.push_back(kept_.target(i)[j]);
      table.values.push_back(kept_.output(i)[j]);
    }
  }
  return table;
}

std::vector<std::pair<std::string, double>> class_numbers(const Table& table, const std::vector<std::string>& names,
                                                          std::size_t classes) {
  const bool is_confusion = table.name == "confusion" && table.rows() == classes;
  if (classes == 0 || table.columns != classes || (table.rows() != 1 && !is_confusion)) return {};
  std::vector<std::pair<std::string, double>> numbers;
  for (std::size_t c = 0; c < classes; ++c) {
    double value = table.values[c];
    if (is_confusion) {
      const auto row = table.values.begin() + static_cast<std::ptrdiff_t>(c * classes);
      value =
          row[static_cast<std::ptrdiff_t>(c)] / std::accumulate(row, row + static_cast<std::ptrdiff_t>(classes), 0.0);
    }
    if (!std::isfinite(value)) continue;
    const std::string of_class = names.size() == classes ? names[c] : std::to_string(c);
    numbers.emplace_back((is_confusion ? "accuracy" : table.name) + "/" + of_class, value);
  }
  return numbers;
}

EvaluationCounts::EvaluationCounts(const EvalSettings& settings, const data::Dataset& dataset,
                                   const std::vector<metrics::MeterRow>& rows, bool has_tables)
    : is_per_class_(settings.is_per_class) {
  const Task task = dataset.task();
  meters_ = make_eval_meters(settings.metrics, task, rows);
  classes_ = static_cast<std::size_t>(task.classes);
  class_names_ = task.class_names;
  if (has_tables || is_per_class_) confusion_ = ConfusionCount(ConfusionCount::classes_of(task, is_per_class_));
  if (has_tables && task.kind == TaskKind::regression) predicted_ = PredictedValues(dataset.size());
  if (!settings.climatology.value.empty()) with_climatology_ = with_climatology(dataset, settings.climatology);
  if (settings.rollout.value == 0) return;
  rollout_ = rolled_out(with_climatology_ ? *with_climatology_ : dataset,
                        {.passes = settings.rollout.value, .first_only = settings.rolls_out_first, .is_measured = true},
                        settings.rollout.cite);
  MeterNames names = settings.metrics;
  if (names.value.empty()) names.value.emplace_back("field");
  // It has the options of the errors that it is compared with.
  const auto field =
      std::ranges::find_if(names.value, [](const std::string& name) { return name.starts_with("field"); });
  names.value.push_back("persistence" + (field == names.value.end() ? "" : field->substr(std::string("field").size())));
  rollout_meters_ = make_meters(names, rollout_->task(), rows);
  rollout_steps_ = task.fields.scaling.target_steps * settings.rollout.value;
}

EvaluationResult EvaluationCounts::evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                                            const data::Dataset& dataset, const EvaluationLimits& limits,
                                            const std::function<void(StepEvent, const LastBatch&)>& notify) {
  const auto count = [&](StepEvent event, const LastBatch& last) {
    if (notify) notify(event, last);
    if (event != StepEvent::forward) return;
    confusion_.add(last);
    predicted_.add(last);
  };
  const EvaluationResult result =
      engine::evaluate(world, wrapper, with_climatology_ ? *with_climatology_ : dataset, limits, meters_, count);
  if (rollout_) {
    RolloutEnds ends(rollout_->size(), rollout_steps_, rollout_->task().fields.scaling);
    const auto add = [&](StepEvent event, const LastBatch& last) {
      if (event == StepEvent::forward) ends.add(last.outputs.main(), *last.given);
    };
    engine::evaluate(world, wrapper, *rollout_, limits, rollout_meters_, add);
    ends.sum_over_ranks(wrapper.collectives());
    rollout_end_ = ends.first_step();
    if (rollout_end_ > 0 && world.is_root()) {
      log::warning(ends.text(*rollout_, "the metrics of that step and of later ones are infinite"));
    }
  }
  confusion_.sum_over_ranks(wrapper.collectives());
  predicted_.gather(wrapper.collectives());
  return result;
}

/// Whether a number of the rollout is of a step that is not finite. The errors of persistence always are.
bool EvaluationCounts::is_behind_end(const std::string& name, std::int64_t step) const {
  const bool is_of_end = step == 0 || step >= rollout_end_;
  return rollout_end_ > 0 && is_of_end && name.find("persistence_rmse") == std::string::npos;
}

std::vector<std::pair<std::string, std::string>> EvaluationCounts::units() const {
  std::vector<std::pair<std::string, std::string>> units;
  for (const metrics::Result& result : meters_.results()) units.emplace_back(result.name, result.unit);
  for (const metrics::Result& result : rollout_meters_.results()) {
    units.emplace_back(name_of_rollout(result.name), result.unit);
  }
  std::erase_if(units, [](const auto& unit) { return unit.second.empty(); });
  return units;
}

metrics::Meters::Readings EvaluationCounts::read() const {
  metrics::Meters::Readings readings = meters_.read();
  if (rollout_) {
    metrics::Meters::Readings of_rollout = rollout_meters_.read();
    const std::vector<metrics::Result> results = rollout_meters_.results();
    for (std::size_t i = 0; i < results.size(); ++i) {
      auto& [name, number] = of_rollout.numbers[i];
      const std::int64_t step = step_of_number(name);
      if (is_behind_end(name, step)) number = results[i].is_higher_better ? -kInfinity : kInfinity;
      name = name_of_rollout(name);
    }
    // The later steps of a target have the names of steps of the rollout, which stand for them.
    std::erase_if(readings.numbers, [&](const auto& number) {
      return std::ranges::find(of_rollout.numbers, number.first, &decltype(readings.numbers)::value_type::first) !=
             of_rollout.numbers.end();
    });
    std::ranges::move(skillful_steps(of_rollout.numbers), std::back_inserter(readings.numbers));
    std::ranges::move(of_rollout.numbers, std::back_inserter(readings.numbers));
    std::ranges::move(of_rollout.tables, std::back_inserter(readings.tables));
  }
  std::vector<Table> tables;
  const bool has_confusion = std::ranges::find(readings.tables, "confusion", &Table::name) != readings.tables.end();
  if (auto table = confusion_.table(); table && !has_confusion) tables.push_back(std::move(*table));
  if (auto table = predicted_.table()) tables.push_back(std::move(*table));
  std::move(readings.tables.begin(), readings.tables.end(), std::back_inserter(tables));
  for (Table& table : tables) {
    if (table.columns == class_names_.size()) table.names = class_names_;
    if (!is_per_class_) continue;
    const auto numbers = class_numbers(table, class_names_, classes_);
    readings.numbers.insert(readings.numbers.end(), numbers.begin(), numbers.end());
  }
  readings.tables = std::move(tables);
  return readings;
}

}  // namespace lockstep::engine
