// SPDX-License-Identifier: BSD-3-Clause
// Updates of 16-bit parameters by tensors: the rule updates float32 values, which are then rounded.
#include <lockstep/optim/tensor_update.hpp>

#include <torch/types.h>

#include "kernels/stochastic_rounding.hpp"
#include "optim/stochastic_rounding.hpp"
#include "optim/tensor_parameters.hpp"

namespace lockstep::optim {

namespace {

/// Elements that are updated together: each requires two float32 copies in addition to the state.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 24;

// Operations on int32, which wrap like those of uint32 in kernels::round_stochastically.

at::Scalar as_int32(std::uint32_t value) { return static_cast<std::int64_t>(static_cast<std::int32_t>(value)); }

/// A logical shift.
at::Tensor shifted(const at::Tensor& x, int places) {
  return x.bitwise_right_shift(places).bitwise_and_((std::int64_t{1} << (32 - places)) - 1);
}

at::Tensor mixed(at::Tensor x) {
  x = x.bitwise_xor(shifted(x, 16)).mul_(as_int32(0x85EBCA6BU));
  x = x.bitwise_xor(shifted(x, 13)).mul_(as_int32(0xC2B2AE35U));
  return x.bitwise_xor(shifted(x, 16));
}

}  // namespace

at::Tensor rounded_stochastically(const at::Tensor& from, std::int64_t begin, kernels::RoundingKey key) {
  at::Tensor position = at::arange(from.numel(), from.options().dtype(at::kInt));
  position.add_(as_int32(static_cast<std::uint32_t>(begin))).bitwise_xor_(as_int32(key.first));
  const at::Tensor random = shifted(mixed(mixed(position).add_(as_int32(key.second))), 16);
  const at::Tensor bits = from.view(at::kInt).add(random).bitwise_and_(as_int32(0xFFFF0000U));
  return at::where(from.isfinite(), bits.view(at::kFloat), from).to(at::kBFloat16);
}

/// [own_end - own_begin] float32 values of the part of a parameter that this rank owns: the master, which follows other
/// writers of the parameter as in element steps, or a copy.
at::Tensor Optimizer::widened(std::size_t block, std::size_t segment, const at::Tensor& half) const {
  if (!half_.has_masters) return half.to(at::kFloat);
  const Segment& of = parameters_->blocks()[block].segments[segment];
  const StateArray state = state_of(block, segment, rule_states_).value();
  const at::TensorOptions options = half.options().dtype(at::kFloat).requires_grad(false);
  at::Tensor master = at::from_blob(
      state.values + of.own_begin * static_cast<std::int64_t>(sizeof(float)), {of.own_end - of.own_begin}, [](void*) {},
      options, half.device());
  master.copy_(at::where(master.to(half.scalar_type()).eq(half), master, half.to(at::kFloat)));
  return master;
}

/// Rounds what `widened` returned to the parameter.
void Optimizer::narrow(std::size_t block, std::size_t segment, const at::Tensor& wide, const at::Tensor& half) const {
  if (!half_.rounds_stochastically) {
    half.copy_(wide);
    return;
  }
  const Segment& of = parameters_->blocks()[block].segments[segment];
  half.copy_(rounded_stochastically(wide, of.own_begin, key_of(block, segment)));
}

kernels::RoundingKey Optimizer::key_of(std::size_t block, std::size_t segment) const {
  return rounding_key(half_.seed, parameters_->blocks()[block].segments[segment].name, steps_[block][segment]);
}

/// Updates parameters of one block and group with the same number of updates, some at a time.
/// @param update  without parameters
void Optimizer::step_halves(std::size_t block, const std::vector<std::size_t>& segments, const TensorUpdate& update,
                            const std::function<void(TensorUpdate&)>& change_and_update) {
  TensorParameters& tensors = *parameters_->as_tensors();
  for (std::size_t first = 0; first < segments.size();) {
    TensorUpdate chunk = update;
    std::size_t end = first;
    for (std::int64_t elements = 0; end < segments.size() && elements < kChunkElements; ++end) {
      const at::Tensor half = tensors.flat_parameter(block, segments[end]);
      add_to(chunk, block, segments[end], widened(block, segments[end], half),
             tensors.flat_gradient(block, segments[end]).to(at::kFloat));
      elements += half.numel();
    }
    const std::vector<at::Tensor> wide = chunk.parameters;
    change_and_update(chunk);
    for (std::size_t i = 0; i < wide.size(); ++i) {
      narrow(block, segments[first + i], wide[i].as_strided({wide[i].numel()}, {1}),
             tensors.flat_parameter(block, segments[first + i]));
    }
    first = end;
  }
}

}  // namespace lockstep::optim
