// SPDX-License-Identifier: BSD-3-Clause
#include "engine/resume/optimizer_arrays.hpp"

#include <torch/types.h>

#include <algorithm>

#include "engine/state/paths.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::engine {

std::size_t OptimizerContext::in_store(std::size_t block) const {
  return part == nullptr ? block : part->in_store(block);
}

const optim::Segment& OptimizerContext::segment(std::size_t block, std::size_t segment) const {
  return store->blocks()[in_store(block)].segments[segment];
}

std::size_t OptimizerContext::parameter(std::size_t block, std::size_t segment) const {
  return store->index_of(in_store(block), segment);
}

std::vector<std::size_t> parameters_of(const OptimizerContext& place) {
  std::vector<std::size_t> numbers;
  for_each_segment(place, [&](std::size_t b, std::size_t s) { numbers.push_back(place.parameter(b, s)); });
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

std::string state_path(const OptimizerContext& place, std::size_t block, std::size_t segment, std::size_t slot) {
  return path(place.group + "/state/" + place.optimizer->state_names()[slot], place.segment(block, segment).name);
}

at::Tensor meta_tensor_of(const optim::StateArray& state) {
  const at::TensorOptions options = at::TensorOptions().dtype(parallel::scalar_type_of(state.dtype));
  const at::Tensor tensor = at::empty(state.shape, options.device(at::kMeta));
  return state.strides.empty() ? tensor : tensor.as_strided(state.shape, state.strides);
}

std::optional<LocalState> local_state(const OptimizerContext& place, std::size_t block, std::size_t segment,
                                      std::size_t slot) {
  const optim::Segment& part = place.segment(block, segment);
  const bool is_whole = place.store->shards() == nullptr || part.own_end - part.own_begin == part.count;
  if (!is_whole && part.own_begin >= part.own_end) return std::nullopt;
  const std::optional<optim::StateArray> state = place.optimizer->state_of(block, segment, slot);
  if (!state) return std::nullopt;
  const at::Device device = place.store->device();
  LocalState local{.path = state_path(place, block, segment, slot), .tensor = meta_tensor_of(*state), .device = device};
  if (is_whole) {
    const at::Tensor& like = local.tensor;
    local.tensor = at::from_blob(
        state->values, like.sizes(), like.strides(), [](void*) {}, like.options().device(device), device);
    return local;
  }
  const auto element = static_cast<std::int64_t>(local.tensor.element_size());
  local.begin = part.own_begin;
  local.bytes = {state->values + part.own_begin * element,
                 static_cast<std::size_t>((part.own_end - part.own_begin) * element)};
  return local;
}

std::string parameter_names(const OptimizerContext& place) {
  std::string names;
  for (const std::size_t i : parameters_of(place)) names += place.store->parameter(i).name + "\n";
  return names;
}

bool has_numbers(const checkpoints::Archive& archive, const OptimizerContext& place) {
  constexpr double kMaxCount = 9007199254740992;  // above it, float64 does not count exactly
  const auto is_there = [&](const auto& number) {
    const std::string group = place.group + "/numbers";
    if (!archive.has_attribute(group, number.first)) return false;
    const double value = archive.real(group, number.first);
    return value >= 0 && value <= kMaxCount;
  };
  const auto& numbers = place.optimizer->numbers();
  return std::all_of(numbers.begin(), numbers.end(), is_there);
}

}  // namespace lockstep::engine
