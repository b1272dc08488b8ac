// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/comm_hooks/post_local_sgd.hpp"

#include <lockstep/core/error.hpp>

#include <torch/types.h>

#include "parallel/store/parameter_store.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

namespace {

/// The memory of all parameters, in pieces of the size of a usual bucket.
std::vector<at::Tensor> pieces_of(const ParameterStore& store) {
  constexpr std::int64_t kBytes = std::int64_t{25} << 20;
  std::vector<at::Tensor> pieces;
  for (const optim::FlatBlock& block : store.blocks()) {
    const at::Tensor all = vector_over(block.parameters, block.count, scalar_type_of(block.dtype), store.device());
    for (const at::Tensor& piece : all.split(kBytes / static_cast<std::int64_t>(size_of(block.dtype)))) {
      pieces.push_back(piece);
    }
  }
  return pieces;
}

void average_over(mpi::Collectives& ranks, ParameterStore& store) {
  const std::vector<at::Tensor> pieces = pieces_of(store);
  std::vector<at::Tensor> averages;
  for (const at::Tensor& piece : pieces) {
    averages.push_back(piece.clone());
    all_reduce(averages.back(), ranks, mpi::ReduceOp::average);
  }
  store.write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < pieces.size(); ++i) pieces[i].copy_(averages[i]);
  });
}

}  // namespace

class PostLocalSgd::Memory : public HookMemory {
 public:
  Memory(mpi::Collectives& all_ranks, mpi::Collectives& group_ranks, const PostLocalSgdOptions& given)
      : all(all_ranks), group(group_ranks), options(given) {
    if (options.start_step < 0) throw ConfigError("post-local SGD: start_step must not be negative");
    if (options.averages.empty()) throw ConfigError("post-local SGD: an average over all ranks is required");
    for (const PostLocalSgdOptions::GroupAverage& average : options.averages) {
      if (average.period < 1) throw ConfigError("post-local SGD: period must be at least 1");
    }
  }

  HookState state() const override { return {.tensors = {}, .integers = {{"step", step}}}; }
  void load_state(const HookState& state) override {
    if (!state.integers.contains("step")) throw CheckpointError("the state of post-local SGD does not contain 'step'");
    step = state.integers.at("step");
  }

  bool is_local() const { return step >= options.start_step; }
  std::int64_t work() const override { return is_local() ? 1 : 0; }
  std::int64_t* step_count() override { return &step; }

  mpi::Collectives& all;
  mpi::Collectives& group;
  PostLocalSgdOptions options;
  std::int64_t step = 0;  // begun so far
};

PostLocalSgd::PostLocalSgd(mpi::Collectives& all, mpi::Collectives& group, const PostLocalSgdOptions& options)
    : memory_(std::make_shared<Memory>(all, group, options)) {}

ChosenHook PostLocalSgd::choice() const {
  const CommHook hook = [memory = memory_](const GradBucket& bucket) {
    const bool is_local = memory->is_local();
    if (bucket.is_last()) ++memory->step;
    return all_reduce_hook(is_local ? memory->group : memory->all)(bucket);
  };
  return {.hook = hook, .memory = memory_, .is_recordable = true};
}

void PostLocalSgd::after_update(DistributedDataParallel& wrapper) const {
  ParameterStore& store = wrapper.store();
  if (store.node_ranks().size() > memory_->group.world_size()) {
    throw ConfigError(
        "post-local SGD: ranks that share parameters must be in one group; set "
        "ddp.shared_parameters=false");
  }
  const std::int64_t local_steps = memory_->step - 1 - memory_->options.start_step;
  mpi::Collectives* due = nullptr;
  for (const PostLocalSgdOptions::GroupAverage& average : memory_->options.averages) {
    if (local_steps >= 0 && local_steps % average.period == 0) due = average.ranks;
  }
  if (due != nullptr) average_over(*due, store);
}

void PostLocalSgd::average_all(DistributedDataParallel& wrapper) const { average_over(memory_->all, wrapper.store()); }

}  // namespace lockstep::parallel
