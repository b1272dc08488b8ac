// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/rollout_ends.hpp"

#include <torch/types.h>

#include <algorithm>

namespace lockstep::engine {

namespace {

/// Is a difference added to an input without a value?
/// @param output  [N, steps * C, space...]
at::Tensor is_gap(const at::Tensor& output, const batch::Batch& batch, const FieldScaling& scaling) {
  const at::Tensor newest =
      at::tensor(scaling.fed_back, at::kLong) + (scaling.input_steps - 1) * scaling.input_channels;
  const at::Tensor is_missing = batch.input().to(output.device()).index_select(1, newest.to(output.device())).isnan();
  std::vector<std::int64_t> repeats(static_cast<std::size_t>(output.dim()), 1);
  repeats[1] = output.size(1) / is_missing.size(1);
  return is_missing.repeat(repeats);
}

}  // namespace

std::vector<std::int64_t> finite_steps(const at::Tensor& output, std::int64_t steps, const batch::Batch& batch,
                                       const FieldScaling& scaling) {
  at::Tensor is_finite = at::isfinite(output);
  if (scaling.adds_newest) is_finite = is_finite.logical_or(is_gap(output, batch, scaling));
  // The product of flags up to each step is 1 until the first step that is not finite.
  const at::Tensor until = is_finite.reshape({output.size(0), steps, -1}).all(2).to(at::kLong).cumprod(1);
  const at::Tensor counts = until.sum(1).cpu().contiguous();
  const auto* const begin = counts.const_data_ptr<std::int64_t>();
  return {begin, begin + counts.numel()};
}

std::vector<std::int64_t> RolloutEnds::add(const at::Tensor& output, const batch::Batch& batch) {
  const std::vector<std::int64_t> finite = finite_steps(output, steps_, batch, scaling_);
  for (std::size_t i = 0; i < finite.size(); ++i) {
    if (finite[i] == steps_) continue;
    ++count_;
    first_ = std::min(first_, finite[i] * size_ + batch.draws()[i].index);
  }
  return finite;
}

at::Tensor RolloutEnds::ended(const at::Tensor& output, const batch::Batch& batch) {
  const std::vector<std::int64_t> finite = add(output, batch);
  if (std::ranges::all_of(finite, [this](std::int64_t count) { return count == steps_; })) return output;
  at::Tensor result = output.clone();
  const std::int64_t channels = output.size(1) / steps_;
  for (std::size_t i = 0; i < finite.size(); ++i) {
    result[static_cast<std::int64_t>(i)].slice(0, finite[i] * channels).fill_(std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

void RolloutEnds::sum_over_ranks(mpi::Collectives& collectives) {
  collectives.all_reduce(&count_, 1, DType::int64, mpi::ReduceOp::sum);
  collectives.all_reduce(&first_, 1, DType::int64, mpi::ReduceOp::min);
}

std::string RolloutEnds::text(const data::Dataset& dataset, const std::string& consequence) const {
  const std::int64_t sample = first_ % size_;
  const std::string name = data::sample_name_of(dataset, sample);
  return (count_ == 1 ? "1 rollout is" : std::to_string(count_) + " rollouts are") + " not finite, " +
         (count_ == 1 ? "that" : "first that") + " of sample " + std::to_string(sample) +
         (name.empty() ? "" : " (" + name + ")") + " from step " + std::to_string(first_step()) + " on; " + consequence;
}

}  // namespace lockstep::engine
