// SPDX-License-Identifier: BSD-3-Clause
#include "engine/measures/evaluation.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/hook.hpp>

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/state/average.hpp"
#include "parallel/reducers/lane_sum.hpp"

namespace lockstep::engine {

namespace {

using metrics::ClassificationSums;

/// Adds the sums of all batches in one order, whoever has counted them: a batch is known to one rank, and zero to the
/// others. What meters have counted travels with their counts.
ClassificationSums sum_of(const std::vector<ClassificationSums>& batches, metrics::Meters& meters,
                          mpi::Collectives& collectives) {
  std::vector<double> losses;
  ClassificationSums sums;
  for (const ClassificationSums& batch : batches) {
    losses.push_back(batch.loss);
    sums = sums + batch;
  }
  std::vector<std::int64_t> counts = {sums.correct, sums.count};
  collectives.all_reduce(counts.data(), counts.size(), DType::int64, mpi::ReduceOp::sum);
  collectives.all_reduce(losses.data(), losses.size(), DType::float64, mpi::ReduceOp::sum);
  engine::sum_over_ranks(meters, collectives);
  return {parallel::sum_by_lanes(losses), counts[0], counts[1]};
}

/// The model is in evaluation mode while one lives.
class EvaluationMode {
 public:
  explicit EvaluationMode(models::Model& model) : model_(&model) { model.eval(); }
  ~EvaluationMode() { model_->train(); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  models::Model* model_;
};

/// Runs the batches of a data set, and shows them to meters and hooks.
class BatchEvaluator {
 public:
  BatchEvaluator(parallel::DistributedDataParallel& wrapper, const data::Dataset& dataset, std::int64_t batch_size,
                 metrics::Meters& meters, const std::function<void(StepEvent, const LastBatch&)>& notify)
      : wrapper_(&wrapper), dataset_(&dataset), batch_size_(batch_size), meters_(&meters), notify_(&notify) {}

  ClassificationSums count(std::int64_t batch) {
    const std::int64_t begin = batch * batch_size_;
    const data::Batch given = batch_at(begin);
    LastBatch last{.is_training = false, .input = given.input, .model = &wrapper_->model()};
    const auto on_forward = [&](const at::Tensor& output, const at::Tensor& target) {
      last.output = output;
      last.target = target;
      show([&] {
        if (*notify_) (*notify_)(StepEvent::forward, last);
        if (!meters_->is_empty()) meters_->add(metrics::samples_of(output, target, begin));
      });
    };
    const auto on_loss = [&](const models::ParsedLosses& losses) {
      last.losses = losses.values;
      show([&] {
        if (*notify_) (*notify_)(StepEvent::loss, last);
      });
    };
    return wrapper_->val_step(given, {.on_forward = on_forward, .on_loss = on_loss});
  }

  /// A forward for the sake of other ranks.
  void only_run(std::int64_t batch) { wrapper_->val_step(batch_at(batch * batch_size_)); }

  void throw_refusal() const {
    if (refusal_) std::rethrow_exception(refusal_);
  }

 private:
  data::Batch batch_at(std::int64_t begin) const {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_size_, dataset_->size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    return dataset_->get(indices);
  }

  template <class Look>
  void show(const Look& look) {
    if (refusal_) return;
    try {
      look();
    } catch (...) {
      refusal_ = std::current_exception();
    }
  }

  parallel::DistributedDataParallel* wrapper_;
  const data::Dataset* dataset_;
  std::int64_t batch_size_;
  metrics::Meters* meters_;
  const std::function<void(StepEvent, const LastBatch&)>* notify_;
  std::exception_ptr refusal_;  // of a meter or a hook, thrown when this rank owes no forward to others any more
};

}  // namespace

KeySpec metrics_key(const char* name, const char* help, const std::vector<metrics::MeterRow>& meters) {
  KeySpec key = keys::texts(name, "", help);
  for (const metrics::MeterRow& row : meters) {
    key.parts.push_back(keys::text(row.name, "", row.help + " (" + row.needs + ")"));
    key.parts.back().parts = row.keys;
  }
  return key;
}

KeySpecs EvalSettings::keys(const std::vector<metrics::MeterRow>& meters) {
  return {
      keys::integer("eval.interval", "0",
                    "steps between evaluations of the test split; 0: at the end of epochs (eval.every_epochs)", 0,
                    kMaxSteps),
      keys::integer("eval.every_epochs", "1",
                    "epochs between evaluations, where eval.interval is 0; the last is evaluated", 1, kMaxSteps),
      keys::integer("eval.begin_epoch", "1", "the first epoch with an evaluation, where eval.interval is 0", 1,
                    kMaxSteps),
      keys::integer("eval.batch_size", "200", "samples of one forward on one rank during evaluation", 1, 1 << 30),
      metrics_key("eval.metrics", "NAME,key=value: what is measured beside loss and accuracy", meters),
      weights_key("eval.weights", "which weights are evaluated, in a run and by `trainer eval`"),
  };
}

EvalSettings EvalSettings::from(const Section& eval) {
  return {.interval = eval.integer("interval"),
          .every_epochs = eval.integer("every_epochs"),
          .begin_epoch = eval.integer("begin_epoch"),
          .batch_size = eval.integer("batch_size"),
          .metrics = cited_texts(eval, "metrics"),
          .weights = cited_text(eval, "weights")};
}

metrics::Meters make_meters(const MeterNames& names, const Task& task, const std::vector<metrics::MeterRow>& rows) {
  std::vector<metrics::Meter> meters;
  for (const std::string& text : names.value) {
    meters.push_back(metrics::make_meter(text, task.classes, names.cite, rows));
  }
  try {
    return metrics::Meters(std::move(meters));
  } catch (const ConfigError& error) {
    throw ConfigError(names.cite + ": " + error.what());
  }
}

void sum_over_ranks(metrics::Meters& meters, mpi::Collectives& collectives) {
  if (meters.is_empty()) return;
  const std::span<std::int64_t> sums = meters.sums();
  if (!sums.empty()) collectives.all_reduce(sums.data(), sums.size(), DType::int64, mpi::ReduceOp::sum);
  if (meters.needs_all_samples()) meters.take_gathered(collectives.all_gather_any(meters.packed()));
}

metrics::ClassificationSums evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                                     const data::Dataset& dataset, std::int64_t batch_size, metrics::Meters& meters,
                                     const std::function<void(StepEvent, const LastBatch&)>& notify) {
  const std::int64_t batches = (dataset.size() + batch_size - 1) / batch_size;
  const data::Share share = data::share_of(batches, world.rank(), world.size());
  std::vector<ClassificationSums> counted(static_cast<std::size_t>(batches));
  wrapper.synchronise_buffers();
  const EvaluationMode evaluation(wrapper.model());
  BatchEvaluator evaluator(wrapper, dataset, batch_size, meters, notify);
  world.together([&] {
    for (std::int64_t batch = share.begin; batch < share.begin + share.count; ++batch) {
      counted[static_cast<std::size_t>(batch)] = evaluator.count(batch);
    }
    // Where ranks bring parameters into each other's forwards, all of them run as many: the first one has the most.
    const std::int64_t most = data::share_of(batches, 0, world.size()).count;
    for (std::int64_t i = share.count; wrapper.has_collective_forward() && i < most; ++i) evaluator.only_run(0);
    evaluator.throw_refusal();
  });
  return sum_of(counted, meters, wrapper.collectives());
}

metrics::ClassificationSums evaluate(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                                     const data::Dataset& dataset, std::int64_t batch_size) {
  metrics::Meters none;
  return evaluate(world, wrapper, dataset, batch_size, none);
}

}  // namespace lockstep::engine
