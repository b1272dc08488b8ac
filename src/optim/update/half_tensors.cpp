// SPDX-License-Identifier: BSD-3-Clause
// Updates of 16-bit parameters by tensors: the rule updates float32 values, which are then rounded.
#include <lockstep/optim/tensor_update.hpp>
#include <lockstep/random/random.hpp>

#include <torch/types.h>

#include "kernels/optimizers.hpp"
#include "optim/update/stochastic_rounding.hpp"
#include "optim/update/tensor_parameters.hpp"
#include "optim/update/tensor_stack.hpp"

namespace lockstep::optim {

namespace {

/// FNV-1a.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : text) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  return hash;
}

// Operations on int32, which wrap like those of uint32 in kernels::round_stochastically.

std::int32_t wrapped(std::int64_t value) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(value)); }

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

/// [3, P] int32 on the device of the stack: for each part what is added to the place of an element in the stack to get
/// its position in the parameter, and the key.
at::Tensor places_of(const TensorStack& stack, const std::vector<std::int64_t>& begins,
                     const std::vector<kernels::RoundingKey>& keys) {
  const auto count = static_cast<std::int64_t>(begins.size());
  const at::Device device = stack.rows().device();
  const at::Tensor table = at::empty({3, count}, at::TensorOptions().dtype(at::kInt).pinned_memory(device.is_cuda()));
  auto* const numbers = table.mutable_data_ptr<std::int32_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto part = static_cast<std::size_t>(i);
    numbers[i] = wrapped(begins[part] - stack.first_row(part) * TensorStack::kRowElements);
    numbers[count + i] = static_cast<std::int32_t>(keys[part].first);
    numbers[2 * count + i] = static_cast<std::int32_t>(keys[part].second);
  }
  return table.to(device, /*non_blocking=*/true);
}

/// The rows of a stack of float32, rounded stochastically to bfloat16.
at::Tensor rounded_rows(const TensorStack& stack, const std::vector<std::int64_t>& begins,
                        const std::vector<kernels::RoundingKey>& keys) {
  const at::Tensor& from = stack.rows();
  const std::vector<at::Tensor> places = stack.by_row(places_of(stack, begins, keys).unbind(1)).unbind();
  const at::TensorOptions int32 = from.options().dtype(at::kInt);
  at::Tensor position = at::arange(from.numel(), int32).view(from.sizes());
  position.add_(places[0]).bitwise_xor_(places[1]);
  const at::Tensor random = shifted(mixed(mixed(position).add_(places[2])), 16);
  const at::Tensor bits = from.view(at::kInt).add(random).bitwise_and_(as_int32(0xFFFF0000U));
  return at::where(from.isfinite(), bits.view(at::kFloat), from).to(at::kBFloat16);
}

}  // namespace

kernels::RoundingKey rounding_key(std::uint64_t seed, std::string_view parameter, std::int64_t step) {
  const std::uint64_t bits =
      random::bits(seed, random::Stream::rounding, hash_of(parameter), static_cast<std::uint64_t>(step));
  return {.first = static_cast<std::uint32_t>(bits), .second = static_cast<std::uint32_t>(bits >> 32)};
}

at::Tensor rounded_stochastically(const at::Tensor& from, std::int64_t begin, kernels::RoundingKey key) {
  const TensorStack stack = TensorStack::of({from});
  return stack.parts_of(rounded_rows(stack, {begin}, {key})).front();
}

/// Float32 values of the parts of parameters that this rank owns, [own_end - own_begin] each: copies of the masters,
/// which follow other writers of the parameters as in element steps, or of the parameters.
/// @param halves  the parts, of segments of one block
TensorStack Optimizer::widened(std::size_t block, const std::vector<std::size_t>& segments,
                               const std::vector<at::Tensor>& halves) const {
  if (!half_.has_masters) return TensorStack::of(halves, at::kFloat);
  const TensorStack narrow = TensorStack::of(halves);
  TensorStack wide = TensorStack::of(masters_of(block, segments, halves));
  const at::Tensor is_same = wide.rows().to(narrow.rows().scalar_type()).eq(narrow.rows());
  at::Tensor rows = wide.rows();
  at::where_out(rows, is_same, rows, narrow.rows().to(at::kFloat));
  return wide;
}

/// Views of the masters.
std::vector<at::Tensor> Optimizer::masters_of(std::size_t block, const std::vector<std::size_t>& segments,
                                              const std::vector<at::Tensor>& halves) const {
  const at::TensorOptions options = halves.front().options().dtype(at::kFloat);
  std::vector<at::Tensor> masters;
  for (const std::size_t segment : segments) {
    const Segment& range = parameters_->blocks()[block].segments[segment];
    std::byte* const values = state_of(block, segment, rule_states_).value().values;
    masters.push_back(flat_view(values + range.own_begin * static_cast<std::int64_t>(sizeof(float)),
                                range.own_end - range.own_begin, options));
  }
  return masters;
}

/// Rounds what `widened` returned to the parameters, after the masters have it.
void Optimizer::narrow(std::size_t block, const std::vector<std::size_t>& segments, const TensorStack& wide,
                       const std::vector<at::Tensor>& halves) const {
  if (half_.has_masters) at::_foreach_copy_(masters_of(block, segments, halves), wide.parts());
  if (!half_.rounds_stochastically) return at::_foreach_copy_(halves, wide.parts());
  std::vector<std::int64_t> begins;
  std::vector<kernels::RoundingKey> keys;
  for (const std::size_t segment : segments) {
    begins.push_back(parameters_->blocks()[block].segments[segment].own_begin);
    keys.push_back(key_of(block, segment));
  }
  at::_foreach_copy_(halves, wide.parts_of(rounded_rows(wide, begins, keys)));
}

kernels::RoundingKey Optimizer::key_of(std::size_t block, std::size_t segment) const {
  return rounding_key(half_.seed, parameters_->blocks()[block].segments[segment].name, steps_[block][segment]);
}

/// Updates parameters of one block and group with the same number of updates, some at a time.
/// @param update  without parameters
void Optimizer::step_halves(std::size_t block, const std::vector<std::size_t>& segments, const TensorUpdate& update,
                            const std::function<void(TensorUpdate&)>& change_and_update) {
  TensorParameters& tensors = *parameters_->as_tensors();
  std::vector<at::Tensor> all;
  for (const std::size_t segment : segments) all.push_back(tensors.flat_parameter(block, segment));
  auto next = segments.begin();
  for (const std::vector<at::Tensor>& halves : divided_for_stacks(all)) {
    const std::vector<std::size_t> chosen_segments(next, next + std::ssize(halves));
    next += std::ssize(halves);
    std::vector<at::Tensor> gradients;
    for (const std::size_t segment : chosen_segments) gradients.push_back(tensors.flat_gradient(block, segment));
    const TensorStack wide_gradients = TensorStack::of(gradients, at::kFloat);
    const TensorStack wide = widened(block, chosen_segments, halves);
    TensorUpdate chunk = update;
    for (std::size_t i = 0; i < chosen_segments.size(); ++i)
      add_to(chunk, block, chosen_segments[i], wide.parts()[i], wide_gradients.parts()[i]);
    change_and_update(chunk);
    narrow(block, chosen_segments, wide, halves);
  }
}

}  // namespace lockstep::optim
