// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/evaluation.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace lockstep::engine {

namespace {

using metrics::ClassificationSums;

/// Adds the sums of all batches in one order, whoever has counted them: a batch is known to one rank, and zero to the
/// others.
ClassificationSums sum_over_batches(const std::vector<ClassificationSums>& batches, mpi::Collectives& collectives) {
  std::vector<double> losses;
  ClassificationSums sums;
  for (const ClassificationSums& batch : batches) {
    losses.push_back(batch.loss);
    sums = sums + batch;
  }
  std::array counts = {sums.correct, sums.count};
  collectives.all_reduce(counts.data(), counts.size(), DType::int64, mpi::ReduceOp::sum);
  collectives.all_reduce(losses.data(), losses.size(), DType::float64, mpi::ReduceOp::sum);
  return {parallel::sum_by_lanes(losses), counts[0], counts[1]};
}

}  // namespace

metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size) {
  const std::int64_t batches = (dataset.size() + batch_size - 1) / batch_size;
  const data::Share share = data::share_of(batches, strategy.world().rank(), strategy.world().size());
  std::vector<ClassificationSums> counted(static_cast<std::size_t>(batches));
  strategy.model().synchronise_buffers();
  strategy.model().model().eval();
  const auto sums_of = [&](std::int64_t batch) {
    const std::int64_t begin = batch * batch_size;
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_size, dataset.size() - begin)));
    std::iota(indices.begin(), indices.end(), begin);
    return strategy.model().val_step(dataset.get(indices));
  };
  for (std::int64_t batch = share.begin; batch < share.begin + share.count; ++batch) {
    counted[static_cast<std::size_t>(batch)] = sums_of(batch);
  }
  // Where ranks bring parameters into each other's forwards, all of them run as many: the first one has the most.
  const std::int64_t most = data::share_of(batches, 0, strategy.world().size()).count;
  for (std::int64_t i = share.count; strategy.model().has_collective_forward() && i < most; ++i) sums_of(0);
  strategy.model().model().train();
  return sum_over_batches(counted, strategy.collectives());
}

}  // namespace lockstep::engine
