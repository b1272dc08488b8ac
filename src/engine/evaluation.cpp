// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/evaluation.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/parallel/lane_sum.hpp>

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace

metrics::Meters make_meters(const Section& eval, const Task& task, const std::vector<metrics::MeterRow>& rows) {
  std::vector<metrics::Meter> meters;
  for (const std::string& text : eval.texts("metrics")) {
    meters.push_back(metrics::make_meter(text, task.classes, eval.cite("metrics"), rows));
  }
  try {
    return metrics::Meters(std::move(meters));
  } catch (const ConfigError& error) {
    throw ConfigError(eval.cite("metrics") + ": " + error.what());
  }
}

void sum_over_ranks(metrics::Meters& meters, mpi::Collectives& collectives) {
  if (meters.is_empty()) return;
  const std::span<std::int64_t> sums = meters.sums();
  if (!sums.empty()) collectives.all_reduce(sums.data(), sums.size(), DType::int64, mpi::ReduceOp::sum);
  if (meters.needs_all_samples()) meters.take_gathered(collectives.all_gather_any(meters.packed()));
}

metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size,
                                     metrics::Meters& meters,
                                     const std::function<void(Moment, const LastBatch&)>& tell) {
  const std::int64_t batches = (dataset.size() + batch_size - 1) / batch_size;
  const data::Share share = data::share_of(batches, strategy.world().rank(), strategy.world().size());
  std::vector<ClassificationSums> counted(static_cast<std::size_t>(batches));
  strategy.model().synchronise_buffers();
  const EvaluationMode evaluation(strategy.model().model());
  std::exception_ptr refusal;  // of a meter or a hook, told when this rank owes no forward to others any more
  const auto sums_of = [&](std::int64_t batch, bool is_measured) {
    const std::int64_t begin = batch * batch_size;
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_size, dataset.size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    const data::Batch given = dataset.get(indices);
    LastBatch last{.is_training = false, .input = given.input, .model = &strategy.model().model()};
    const auto observe = [&](const std::function<void()>& look) {
      if (!is_measured || refusal) return;
      try {
        look();
      } catch (...) {
        refusal = std::current_exception();
      }
    };
    const parallel::StepObserver observer{.on_forward =
                                              [&](const at::Tensor& output, const at::Tensor& target) {
                                                last.output = output;
                                                last.target = target;
                                                observe([&] {
                                                  if (tell) tell(Moment::forward, last);
                                                  if (!meters.is_empty())
                                                    meters.add(metrics::samples_of(output, target, begin));
                                                });
                                              },
                                          .on_loss =
                                              [&](const models::ParsedLosses& losses) {
                                                last.losses = losses.values;
                                                observe([&] {
                                                  if (tell) tell(Moment::loss, last);
                                                });
                                              }};
    return strategy.model().val_step(given, observer);
  };
  strategy.world().together([&] {
    for (std::int64_t batch = share.begin; batch < share.begin + share.count; ++batch) {
      counted[static_cast<std::size_t>(batch)] = sums_of(batch, true);
    }
    // Where ranks bring parameters into each other's forwards, all of them run as many: the first one has the most.
    const std::int64_t most = data::share_of(batches, 0, strategy.world().size()).count;
    for (std::int64_t i = share.count; strategy.model().has_collective_forward() && i < most; ++i) sums_of(0, false);
    if (refusal) std::rethrow_exception(refusal);
  });
  return sum_of(counted, meters, strategy.collectives());
}

metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size) {
  metrics::Meters none;
  return evaluate(strategy, dataset, batch_size, none);
}

}  // namespace lockstep::engine
