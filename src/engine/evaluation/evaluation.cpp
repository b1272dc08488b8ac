// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/evaluation.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "batch/collate.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "data/mixing.hpp"
#include "engine/settings/run_position.hpp"
#include "engine/state/stored_model.hpp"
#include "engine/steps/micro_batch_events.hpp"
#include "models/losses/task_table.hpp"
#include "mpi/shared/lane_tree.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

namespace {

/// The times of evaluations in a pattern of earlier versions: "3epochs" of "train:2,train,test". Patterns with several
/// evaluations have none.
std::string every_of_phases(const std::string& pattern, const std::string&) {
  std::int64_t epochs = 0;
  std::int64_t evaluations = 0;
  for (const std::string& word : split_list(pattern, ',')) {
    if (word == "test") ++evaluations;
    if (word == "train") ++epochs;
    if (word.starts_with("train:")) epochs += parse_integer(word.substr(6)).value_or(0);
  }
  return epochs > 0 && evaluations == 1 && pattern.ends_with(",test") ? Every({.epochs = epochs}).text() : "";
}

const std::string kDefaultEvaluations = "1epochs";

/// Former settings of the times of evaluations. Where several were set, eval.when=end and never came first, and then
/// eval.interval, so that they replace others and are not replaced.
std::string every_of_when(const std::string& when, const std::string& current) {
  return when == "regular" ? (current.empty() ? kDefaultEvaluations : current) : when;
}

std::string every_of_interval(const std::string& interval, const std::string& current) {
  const std::string every = every_of_intervals(interval, "");
  const bool is_off = every == "never" || current == "end" || current == "never";
  return is_off ? (current.empty() ? kDefaultEvaluations : current) : every;
}

std::string every_of_epochs(const std::string& intervals, const std::string& current) {
  const bool is_free = current.empty() || current == kDefaultEvaluations;
  return is_free ? every_of_intervals(intervals, "epochs") : current;
}

std::string begin_of_epoch(const std::string& epoch, const std::string&) {
  return epoch == "1" ? "0" : epoch + "epochs";
}

KeySpec eval_every_key() {
  KeySpec key = keys::text("eval.every", kDefaultEvaluations,
                           "Time between evaluations: 500 (steps), 2epochs, 10min, end or never; joined by +, and with "
                           "changes, such as 500 then 100@10000. Unless it is never, the end of the run is evaluated");
  const std::string hint = "see --help=eval";
  key = keys::replacing(key, {.key = "eval.when", .translate = every_of_when, .hint = hint});
  key = keys::replacing(key, {.key = "eval.interval", .translate = every_of_interval, .hint = hint});
  key = keys::replacing(key, {.key = "eval.every_epochs", .translate = every_of_epochs, .hint = hint});
  return keys::replacing(key, {.key = "train.phases",
                               .translate = every_of_phases,
                               .hint = "list other epochs as changes: 1epochs then 2epochs@2epochs"});
}

/// The number or text that each sample has under this name.
/// @throws DataError  the batch does not have this value, or it is neither one number nor one text for each sample
std::vector<metrics::SampleValue> sample_values(const batch::Batch& batch, const std::string& name) {
  const auto refuse = [&]() {
    throw DataError("the value '" + name + "' cannot be read by a meter: it must be one number or one text per sample");
  };
  std::vector<metrics::SampleValue> result;
  const batch::Value& value = batch.at(name);
  if (value.is<at::Tensor>()) {
    const at::Tensor numbers = value.as<at::Tensor>().detach().to(at::kCPU, at::kDouble).flatten().contiguous();
    if (numbers.numel() != batch.size()) refuse();
    const double* const begin = numbers.const_data_ptr<double>();
    result.assign(begin, begin + numbers.numel());
    return result;
  }
  const batch::ValueList* const values = batch::values_of_samples(value, batch.size());
  if (values == nullptr) refuse();
  for (const batch::Value& each : *values) {
    if (each.is<std::string>()) {
      result.emplace_back(each.as<std::string>());
    } else if (each.is<std::int64_t>()) {
      result.emplace_back(static_cast<double>(each.as<std::int64_t>()));
    } else if (each.is<double>()) {
      result.emplace_back(each.as<double>());
    } else {
      refuse();
    }
  }
  return result;
}

/// Repeats each sample's value for all of its predictions, such as the pixels of an image.
std::vector<metrics::SampleValue> repeated(const std::vector<metrics::SampleValue>& values, std::size_t predictions) {
  if (values.empty() || values.size() == predictions) return values;
  std::vector<metrics::SampleValue> result;
  for (std::size_t i = 0; i < predictions; ++i) result.push_back(values[i / (predictions / values.size())]);
  return result;
}

double items_of(const std::string& name, const std::vector<std::pair<std::string, double>>& counts, double usual) {
  const std::string entry = name.substr(0, name.find('/'));  // name of the map, if it is an element of one
  for (const auto& [each, count] : counts) {
    if (each == entry || (each == "loss" && entry == "loss_raw")) return count;
  }
  return usual;
}

/// The total of losses that run over different items.
double sum_of_trained(const std::vector<std::pair<std::string, double>>& means) {
  double sum = 0;
  for (std::size_t i = 1; i < means.size(); ++i) {
    const std::string& name = means[i].first;
    const bool is_trained = name.find('/') == std::string::npos && name.find("loss") != std::string::npos;
    if (is_trained) sum += means[i].second;
  }
  return sum;
}

/// The losses of the batches of an evaluation, and what they count. Their means are sums over all batches divided by
/// the counts of all batches, added in a fixed order: the same bits whichever rank has which batch.
class LossSums {
 public:
  /// @param batches  of all ranks
  explicit LossSums(std::int64_t batches) : batches_(static_cast<std::size_t>(batches)) {}

  /// @param batch   its number
  /// @param counts  as models::Model::counts
  /// @param usual   items of a loss that is not counted
  /// @throws ConfigError  other losses than in the first batch
  void add(std::int64_t batch, const models::ParsedLosses& losses,
           const std::vector<std::pair<std::string, double>>& counts, double usual) {
    if (names_.empty()) {
      for (const auto& [name, value] : losses.values) names_.push_back(name);
      sums_.assign(names_.size() * batches_, 0.0);
      items_.assign(names_.size() * batches_, 0.0);
      are_counted_ = !counts.empty();
    }
    const std::vector<std::pair<std::string, double>> values = models::host_values(losses);
    if (values.size() != names_.size()) throw ConfigError("the losses of the model differ from the first batch");
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t place = i * batches_ + static_cast<std::size_t>(batch);
      items_[place] = items_of(values[i].first, counts, usual);
      if (items_[place] > 0) sums_[place] = values[i].second * items_[place];
    }
  }

  /// The means over all ranks' batches. Collective.
  std::vector<std::pair<std::string, double>> means(const mpi::Communicator& world, mpi::Collectives& collectives) {
    std::string names = joined(names_, "\n");
    names = world.broadcast(names);  // rank 0 has a batch if any rank has one
    are_counted_ = world.all_reduce(static_cast<std::int64_t>(are_counted_ ? 1 : 0)) > 0;
    world.all_or_throw([&] {
      if (names_.empty() || joined(names_, "\n") == names) return;
      throw ConfigError("the model returned the losses '" + joined(names_) + "', but those of rank 0 differ");
    });
    names_ = split_list(names, '\n');
    sums_.resize(names_.size() * batches_);
    items_.resize(names_.size() * batches_);
    collectives.all_reduce(sums_.data(), sums_.size(), DType::float64, mpi::ReduceOp::sum);
    collectives.all_reduce(items_.data(), items_.size(), DType::float64, mpi::ReduceOp::sum);
    std::vector<std::pair<std::string, double>> means;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto of_batches = [&](const std::vector<double>& values) {
        return mpi::sum_by_lanes(std::span(values).subspan(i * batches_, batches_));
      };
      means.emplace_back(names_[i], of_batches(sums_) / of_batches(items_));
    }
    if (are_counted_ && means.size() > 1) means.front().second = sum_of_trained(means);
    return means;
  }

 private:
  std::size_t batches_;
  std::vector<std::string> names_;  // names of the losses, "loss" first; empty = this rank had no batch
  std::vector<double> sums_;        // [names, batches]; 0 where another rank has counted
  std::vector<double> items_;       // [names, batches]; the same
  bool are_counted_ = false;        // whether the model counts the items
};

/// The numbers of items in the means of the losses; empty = each is a mean over the samples.
std::vector<std::pair<std::string, double>> counted_items(const models::Model& model, const batch::Batch& given,
                                                          const models::ParsedLosses& losses) {
  auto counts = models::counts_of(model, given);
  if (!counts.empty() || !losses.is_of_task || !models::counts_by_task(model)) return counts;
  return {{"loss", models::count_targets(model, given).counted}};
}

std::optional<metrics::Answers> answers_of(const parallel::ValidationResult& validated) {
  const batch::Batch& batch = validated.batch;
  if (!batch.has_target() || !batch.at(batch.target_key()).is<at::Tensor>()) return std::nullopt;
  return metrics::count_answers(validated.outputs.main(), batch.target());
}

/// @return  the number of counted predictions or samples
std::int64_t count_answers(const parallel::ValidationResult& validated, std::int64_t samples,
                           EvaluationResult& result) {
  const auto answers = answers_of(validated);
  const std::int64_t items = answers ? answers->count : samples;
  result.count += items;
  result.correct += answers ? answers->correct : 0;
  result.has_classes = result.has_classes && answers;
  return items;
}

}  // namespace

KeySpec metrics_key(const char* name, const char* help, const std::vector<metrics::MeterRow>& meters) {
  KeySpec key = keys::texts(name, "", help);
  for (const metrics::MeterRow& row : meters) {
    key.parts.push_back(keys::text(row.name, "", row.help + " (" + row.needs + ")"));
    key.parts.back().parts = row.keys;
    for (const KeySpec& common : metrics::common_meter_keys()) key.parts.back().parts.push_back(common);
  }
  return key;
}

KeySpecs EvalSettings::keys(const std::vector<metrics::MeterRow>& meters) {
  return keys::titled(
      "Evaluation during training and by `trainer eval`",
      {
          eval_every_key(),
          keys::expert(
              keys::replacing(keys::text("eval.begin", "0", "First step or epoch that is evaluated: 100 or 2epochs"),
                              {.key = "eval.begin_epoch", .translate = begin_of_epoch})),
          keys::choice("eval.split", "val",
                       "Split of the data that is evaluated, during training and by `trainer eval`",
                       {"train", "val", "test"}),
          keys::integer("eval.batch_size", "200", "Samples per forward pass and rank during evaluation", 1, 1 << 30),
          keys::integer("eval.max_batches", "0",
                        "Maximum number of batches per evaluation, over all ranks. 0 = the whole split", 0, kMaxSteps),
          metrics_key(
              "eval.metrics",
              "NAME,option=value: a metric to compute in addition to the losses. If not set, the kind of the task "
              "selects the metrics",
              meters),
          keys::boolean(
              "eval.per_class", "false",
              "Also report numbers of each class by its name, such as val/accuracy/cat; with the metric overlap "
              "val/iou/cat"),
          keys::integer("eval.rollout", "0",
                        "Forward passes of a rollout of fields, in which predictions become inputs. Its metrics are "
                        "named by step, such as val/rmse@3/t2m, next to those of persistence. 0 = none",
                        0, 1 << 20),
          keys::expert(keys::choice("eval.rollout_starts", "all",
                                    "Windows that rollouts begin with: all, or the first of each trajectory",
                                    {"all", "first"})),
          keys::text(
              "eval.climatology", "",
              "FILE:VARIABLE, or an npy FILE, with the climatology of the metric acc: fields [channels, space...], or "
              "those of 12 months or 366 days of the year, [12 or 366, channels, space...]"),
          weights_key("eval.weights", "Weights that are evaluated, during training and by `trainer eval`"),
      });
}

EvalSettings EvalSettings::from(const Section& eval) {
  return {.split = cited_text(eval, "split"),
          .every = Every::parse(eval.text("every"), eval.cite("every")),
          .begin = Begin::parse(eval.text("begin"), eval.cite("begin")),
          .limits = {eval.integer("batch_size"), eval.integer("max_batches")},
          .metrics = cited_texts(eval, "metrics"),
          .is_per_class = eval.boolean("per_class"),
          .rollout = {eval.integer("rollout"), eval.cite("rollout")},
          .rolls_out_first = eval.text("rollout_starts") == "first",
          .climatology = cited_text(eval, "climatology"),
          .weights = cited_text(eval, "weights")};
}

bool EvalSettings::is_due(const Progress& progress) const {
  if (is_never()) return false;
  if (progress.step == progress.total_steps) return true;
  const RunPosition position = position_of(progress);
  return begin.is_reached(position) && every.is_due(position);
}

const data::Dataset& split_of(const data::Splits& splits, const Cited<std::string>& name) {
  const std::vector<std::pair<std::string, const data::Dataset*>> all = {
      {"train", splits.train.get()}, {"val", splits.val.get()}, {"test", splits.test.get()}};
  std::vector<std::string> there;
  for (const auto& [each, dataset] : all) {
    if (dataset == nullptr) continue;
    if (each == name.value) return *dataset;
    there.push_back(each);
  }
  if (there.empty()) throw ConfigError(name.cite + ": the data source has no samples; check data.path");
  throw ConfigError(name.cite + ": the data source has no split '" + name.value + "'; choose another one, such as " +
                    joined(there) + ", or set eval.every=never");
}

void add_to(metrics::Meters& meters, const batch::Outputs& outputs, const batch::Batch& batch, std::int64_t first) {
  if (meters.is_empty()) return;
  meters.add([&](const metrics::Reads& reads) {
    const at::Tensor& output = reads.output.empty() ? outputs.main() : outputs.tensor(reads.output);
    const std::string& usual = batch.has(data::kMajorLabel) ? data::kMajorLabel : batch.target_key();
    const at::Tensor& target = batch.tensor(reads.target.empty() ? usual : reads.target);
    metrics::Samples samples = metrics::samples_of(output, target, first);
    for (const std::string& name : reads.values) {
      samples.values[name] = repeated(sample_values(batch, name), samples.size());
    }
    const auto add_field = [&](const std::string& name) {
      samples.fields[name] = metrics::field_of(name, batch.tensor(name), target);
    };
    for (const std::string& name : reads.fields) add_field(name);
    for (const std::string& name : reads.optional_fields) {
      if (batch.has(name) && name != batch.target_key()) add_field(name);
    }
    return samples;
  });
}

void sum_over_ranks(metrics::Meters& meters, mpi::Collectives& collectives) {
  if (meters.is_empty()) return;
  std::vector<std::int64_t> maxima = meters.take_maxima();
  const std::span<std::int64_t> sums = meters.sums();
  if (!sums.empty()) collectives.all_reduce(sums.data(), sums.size(), DType::int64, mpi::ReduceOp::sum);
  if (!maxima.empty()) collectives.all_reduce(maxima.data(), maxima.size(), DType::int64, mpi::ReduceOp::max);
  meters.put_maxima(maxima);
  if (meters.needs_all_samples()) meters.take_gathered(collectives.all_gather_any(meters.packed()));
}

std::vector<std::pair<std::string, double>> EvaluationResult::values(TaskKind kind) const {
  const models::TaskRow& row = models::row_of(kind);
  std::vector<std::pair<std::string, double>> values = losses;
  if (row.has_accuracy && has_classes) values.emplace_back("accuracy", accuracy());
  if (row.has_perplexity) values.emplace_back("perplexity", std::exp(mean_loss()));
  return values;
}

EvaluationResult evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                          const data::Dataset& dataset, const EvaluationLimits& limits, metrics::Meters& meters,
                          const std::function<void(StepEvent, const LastBatch&)>& notify) {
  const models::Model& model = wrapper.model();
  EvaluationResult result;
  LossSums losses(batches_of(dataset, limits));
  std::exception_ptr refusal;  // error of a meter or a hook, thrown once no other rank waits for forwards of this one
  wrapper.synchronize_buffers();
  for_each_batch(world, wrapper, dataset, limits, "evaluation", [&](std::int64_t number, const batch::Batch& given) {
    const MicroBatchEvents::Notify show = [&](StepEvent event, const LastBatch& last) {
      if (refusal) return;
      try {
        if (notify) notify(event, last);
        if (event == StepEvent::forward) add_to(meters, last.outputs, *last.batch, number * limits.batch_size);
      } catch (...) {
        refusal = std::current_exception();
      }
    };
    MicroBatchEvents events({.is_training = false, .given = &given, .model = &model}, show);
    const parallel::ValidationResult validated = wrapper.val_step(given, &events);
    const std::int64_t items = count_answers(validated, given.size(), result);
    losses.add(number, validated.losses, counted_items(model, given, validated.losses), static_cast<double>(items));
  });
  world.all_or_throw([&] {
    if (refusal) std::rethrow_exception(refusal);
  });
  result.losses = losses.means(world, wrapper.collectives());
  std::vector<std::int64_t> counts = {result.correct, result.count, result.has_classes ? 0 : 1};
  wrapper.collectives().all_reduce(counts.data(), counts.size(), DType::int64, mpi::ReduceOp::sum);
  result.correct = counts[0];
  result.count = counts[1];
  result.has_classes = counts[2] == 0;
  sum_over_ranks(meters, wrapper.collectives());
  return result;
}

void with_average(parallel::DistributedDataParallel& wrapper, optim::ModelAverage* average,
                  const std::function<void()>& body) {
  if (average == nullptr || !average->has_begun()) return body();
  wrapper.synchronize_buffers();  // training continues as if no average were evaluated
  average->swap();
  try {
    body();
  } catch (...) {
    average->swap_alone();
    throw;
  }
  average->swap();
}

}  // namespace lockstep::engine
