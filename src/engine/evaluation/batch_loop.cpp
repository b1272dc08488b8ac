// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/batch_loop.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/data/dataset.hpp>
#include <lockstep/data/sampler.hpp>

#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/system/resources.hpp"
#include "core/system/status_line.hpp"
#include "engine/evaluation/target_check.hpp"
#include "engine/saving/progress_lines.hpp"
#include "engine/settings/loader_memory.hpp"

namespace lockstep::engine {

namespace {

std::vector<batch::Draw> draws_of_batch(const data::Dataset& dataset, const EvaluationLimits& limits,
                                        std::int64_t batch) {
  const std::int64_t begin = batch * limits.batch_size;
  return batch::draws_in_order(begin, std::min(limits.batch_size, dataset.size() - begin));
}

batch::Batch batch_in_order(const data::Dataset& dataset, const EvaluationLimits& limits, std::int64_t batch) {
  std::vector<batch::Draw> draws = draws_of_batch(dataset, limits, batch);
  batch::Batch given = dataset.get(draws);
  given.set_draws(std::move(draws));
  return given;
}

/// Loads the batches of this rank in advance. Collective.
std::unique_ptr<data::Loader> open_loader(const mpi::Communicator& world, const data::Dataset& dataset,
                                          const EvaluationLimits& limits, const data::Share& batches,
                                          const models::Model& model) {
  constexpr int kPrefetch = 2;
  const std::vector<at::Tensor> parameters = model.parameters();
  const bool has_gpu = !parameters.empty() && parameters.front().is_cuda();
  const int ranks = world.split_by_host().size();
  world.all_or_throw([&] {
    const std::int64_t rows = std::min<std::int64_t>(limits.batch_size, dataset.size());
    require_evaluation_memory(batch_bytes(loaded_layout(dataset, has_gpu), rows), kPrefetch + 1, available_memory(),
                              ranks);
  });
  const std::shared_ptr<const data::Dataset> borrowed(std::shared_ptr<const data::Dataset>(), &dataset);
  const auto plan = [&dataset, limits](std::int64_t k) { return draws_of_batch(dataset, limits, k); };
  return std::make_unique<data::Loader>(
      borrowed, plan, batches.begin, batches.begin + batches.count,
      data::LoaderOptions{.workers = limits.loader_threads,
                          .prefetch = kPrefetch,
                          .name = "the evaluated data",
                          .pins_memory = has_gpu,
                          .prefers_bytes = has_gpu,
                          .prefers_channels_last = model.family().prefers_channels_last,
                          .check = target_check(model, dataset.task())});
}

}  // namespace

std::int64_t batches_of(const data::Dataset& dataset, const EvaluationLimits& limits) {
  if (dataset.size() < 1) throw_agreed(ExitCode::data, "there are no samples to evaluate");
  const std::int64_t all = (dataset.size() + limits.batch_size - 1) / limits.batch_size;
  return limits.max_batches > 0 ? std::min(all, limits.max_batches) : all;
}

EvaluatedBatch run_batch(parallel::DistributedDataParallel& wrapper, const batch::Batch& given) {
  EvaluatedBatch evaluated{.batch = wrapper.prepare(given, /*is_training=*/false), .outputs = {}};
  const parallel::DistributedDataParallel::OptimContext context(wrapper, /*completes_step=*/true);
  evaluated.outputs = wrapper.forward(evaluated.batch);
  return evaluated;
}

void for_each_batch(const mpi::Communicator& world, parallel::DistributedDataParallel& wrapper,
                    const data::Dataset& dataset, const EvaluationLimits& limits, const std::string& name,
                    const std::function<void(std::int64_t number, const batch::Batch& given)>& work) {
  const std::int64_t batches = batches_of(dataset, limits);
  const data::Share share = data::share_of(batches, world.rank(), world.size());
  const EvaluationMode evaluation(wrapper.model());
  ProgressLines progress(name, share.count);
  world.all_or_throw([&] {
    const std::unique_ptr<data::Loader> loader = open_loader(world, dataset, limits, share, wrapper.model());
    for (std::int64_t batch = share.begin; batch < share.begin + share.count; ++batch) {
      set_phase(Phase::data);
      batch::Batch given = loader->next();
      set_phase(Phase::forward);
      work(batch, given);
      progress.show(batch - share.begin + 1);
    }
    const torch::NoGradGuard no_grad;
    const std::int64_t max = data::share_of(batches, 0, world.size()).count;  // the first rank has the largest share
    for (std::int64_t i = share.count; wrapper.has_collective_forward() && i < max; ++i) {
      run_batch(wrapper, batch_in_order(dataset, limits, 0));
    }
  });
}

}  // namespace lockstep::engine
