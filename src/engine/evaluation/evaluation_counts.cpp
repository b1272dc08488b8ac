// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/evaluation_counts.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/evaluation/class_numbers.hpp"

namespace lockstep::engine {

EvaluationCounts::EvaluationCounts(const EvalSettings& settings, const data::Dataset& dataset,
                                   const std::vector<metrics::MeterRow>& rows, bool has_tables)
    : is_per_class_(settings.is_per_class) {
  const Task task = dataset.task();
  meters_ = make_eval_meters(settings.metrics, task, rows);
  classes_ = static_cast<std::size_t>(task.classes);
  class_names_ = task.class_names;
  if (has_tables || is_per_class_) confusion_ = ConfusionCount(ConfusionCount::classes_of(task, is_per_class_));
  if (has_tables && task.kind == TaskKind::regression) predicted_ = PredictedValues(dataset.size());
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
  const EvaluationResult result = engine::evaluate(world, wrapper, dataset, limits, meters_, count);
  confusion_.sum_over_ranks(wrapper.collectives());
  predicted_.gather(wrapper.collectives());
  return result;
}

metrics::Meters::Readings EvaluationCounts::read() const {
  metrics::Meters::Readings readings = meters_.read();
  std::vector<Table> tables;
  const bool has_confusion = std::any_of(readings.tables.begin(), readings.tables.end(),
                                         [](const Table& table) { return table.name == "confusion"; });
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
