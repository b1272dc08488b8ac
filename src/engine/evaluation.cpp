// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/evaluation.hpp>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace lockstep::engine {

namespace {

metrics::ClassificationSums sum_over_ranks(const metrics::ClassificationSums& mine, mpi::Collectives& collectives) {
  std::array counts = {mine.correct, mine.count};
  double loss = mine.loss;
  collectives.all_reduce(counts.data(), counts.size(), DType::int64, mpi::ReduceOp::sum);
  collectives.all_reduce(&loss, 1, DType::float64, mpi::ReduceOp::sum);
  return {loss, counts[0], counts[1]};
}

}  // namespace

metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size) {
  const data::Share share = data::share_of(dataset.size(), strategy.world().rank(), strategy.world().size());
  metrics::ClassificationSums mine;
  strategy.model().synchronise_buffers();
  strategy.model().model().eval();
  for (std::int64_t done = 0; done < share.count; done += batch_size) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(batch_size, share.count - done)));
    std::iota(indices.begin(), indices.end(), share.begin + done);
    mine = mine + strategy.model().val_step(dataset.get(indices));
  }
  strategy.model().model().train();
  return sum_over_ranks(mine, strategy.collectives());
}

}  // namespace lockstep::engine
