// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/sharding/shard_reducer.hpp"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "mpi/shared/device_collectives.hpp"
#include "parallel/store/tensor_collectives.hpp"

namespace lockstep::parallel {

ShardReducer::ShardReducer(std::vector<NamedParameter> parameters, std::vector<Unit> units, const ShardRanks& ranks,
                           std::function<void(std::size_t)> on_reduced, std::optional<at::ScalarType> rounding)
    : parameters_(std::move(parameters)),
      units_(std::move(units)),
      ranks_(ranks),
      collectives_(ranks.inside()),
      on_reduced_(std::move(on_reduced)),
      rounding_(ranks.all().world_size() > 1 ? rounding : std::nullopt),
      positions_(parameters_.size()),
      has_arrived_(parameters_.size()),
      is_used_(parameters_.size()),
      awaited_(units_.size()),
      contributions_(units_.size()),
      has_crossed_(units_.size()) {
  std::size_t max_bytes = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    const Unit& unit = units_[u];
    for (const Slot& slot : unit.slots) positions_[slot.parameter] = {u, slot.offset};
    const at::Tensor& any = parameters_[unit.slots.front().parameter].tensor;
    slices_.push_back(at::zeros({unit.slice(collectives_.rank())}, any.options().requires_grad(false)));
    max_bytes = std::max(max_bytes, static_cast<std::size_t>(unit.count()) * c10::elementSize(type_in_transit(u)));
  }
  // If nothing waits for a reduction, the next unit is packed meanwhile.
  stagings_.resize(mpi::has_device_buckets(collectives_) ? 2 : 1);
  for (Staging& staging : stagings_) staging.memory = allocate(max_bytes);
  begin_round();
  hooks_ = std::make_unique<AccumulatorHooks>(
      parameters_, [this](std::size_t parameter, bool /*has_gradient*/) { on_accumulated(parameter); });
}

mpi::BucketMemory ShardReducer::allocate(std::size_t bytes) const {
  const at::Device device = slices_.front().device();
  if (device.is_cpu() || mpi::has_device_buckets(collectives_)) return collectives_.allocate_bucket(bytes);
  const auto memory = std::make_shared<at::Tensor>(
      at::zeros({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device)));
  return {.bytes = bytes_of(*memory), .owner = memory};
}

// ---- Reduction

void ShardReducer::prepare(Synchronization mode) {
  end_crossings();  // crossings of a step that was not finished
  if (is_open_) flush();
  is_open_ = true;
  is_last_micro_batch_ = mode != Synchronization::none;
}

void ShardReducer::on_accumulated(std::size_t parameter) {
  const std::size_t unit = positions_[parameter].unit;
  // The gradients of a second backward in the same step are reduced in a separate round.
  if (has_arrived_[parameter] != 0 && is_reduced(unit)) flush();
  if (std::exchange(has_arrived_[parameter], char{1}) != 0) return;
  --awaited_[unit];
  while (next_ > 0 && awaited_[next_ - 1] == 0) reduce(--next_);
}

void ShardReducer::begin_round() {
  next_ = units_.size();
  std::fill(has_arrived_.begin(), has_arrived_.end(), char{0});
  for (std::size_t u = 0; u < units_.size(); ++u) awaited_[u] = units_[u].slots.size();
}

/// Reduces the units for which gradients are missing, with what is there.
void ShardReducer::flush() {
  while (next_ > 0) reduce(--next_);
  begin_round();
}

void ShardReducer::reduce(std::size_t unit) {
  const torch::NoGradGuard no_grad;
  Staging& staging = stagings_[turn_++ % stagings_.size()];
  settle(staging);
  pack(unit, staging.memory);
  staging.is_added = contributions_[unit]++ > 0;
  staging.is_last = is_last_micro_batch_;
  staging.unit = unit;
  start(staging);
  staging.is_busy = true;
  if (stagings_.size() == 1) settle(staging);
  on_reduced_(unit);
}

/// Slices of different sizes are cut from a reduction of the whole unit.
void ShardReducer::start(Staging& staging) {
  const Unit& unit = units_[staging.unit];
  const at::Tensor& slice = slices_[staging.unit];
  const at::Tensor all =
      vector_over(staging.memory.bytes.data(), unit.count(), type_in_transit(staging.unit), slice.device());
  if (!are_even(unit.borders)) {
    staging.result = all.narrow(0, unit.begin(collectives_.rank()), slice.numel());
    staging.ticket = start_all_reduce(all, collectives_, op());
  } else {
    staging.result = staging.is_added || rounding_ ? at::empty_like(slice, type_in_transit(staging.unit)) : slice;
    begin_change(staging.unit);
    staging.ticket = start_reduce_scatter(all, staging.result, collectives_, op());
  }
}

at::ScalarType ShardReducer::type_in_transit(std::size_t unit) const {
  return rounding_.value_or(scalar_type_of(units_[unit].dtype));
}

/// Moves the gradients of a unit to where they are reduced.
void ShardReducer::pack(std::size_t unit, const mpi::BucketMemory& memory) {
  const at::ScalarType type = type_in_transit(unit);
  const std::size_t element = c10::elementSize(type);
  for (const Slot& slot : units_[unit].slots) {
    const at::Tensor& parameter = parameters_[slot.parameter].tensor;
    at::Tensor& gradient = parameter.mutable_grad();
    const at::Tensor view =
        view_of(memory.bytes.data() + static_cast<std::size_t>(slot.offset) * element, parameter, memory.owner, type);
    if (gradient.defined()) {
      view.copy_(rounding_ ? gradient.mul(1.0 / ranks_.all().world_size()) : gradient);
      is_used_[slot.parameter] = 1;
    } else {
      view.zero_();
    }
    gradient.reset();
  }
}

/// Waits for a reduction that is under way.
void ShardReducer::settle(Staging& staging) {
  if (!std::exchange(staging.is_busy, false)) return;
  collectives_.wait(staging.ticket);
  const at::Tensor result = std::exchange(staging.result, at::Tensor());
  const at::Tensor& slice = slices_[staging.unit];
  if (has_crossed_[staging.unit] != 0) {  // a second backward after the last micro-batch
    end_crossings();
    all_reduce(result, *ranks_.across(), op());
  }
  begin_change(staging.unit);
  if (staging.is_added) {
    slice.add_(result);
  } else if (!result.is_same(slice)) {
    slice.copy_(result);
  }
  if (!staging.is_last) return;
  cross(staging.unit);
  if (ranks_.copies() == 1) send_to_host(staging.unit);
}

void ShardReducer::settle_all() {
  for (std::size_t i = 0; i < stagings_.size(); ++i) settle(stagings_[(turn_ + i) % stagings_.size()]);
}

/// Starts to average a slice over the copies, unless that was started in this step.
void ShardReducer::cross(std::size_t unit) {
  if (ranks_.copies() == 1 || has_crossed_[unit] != 0 || slices_[unit].numel() == 0) return;
  has_crossed_[unit] = 1;
  begin_change(unit);
  const at::Tensor values = slices_[unit].to(type_in_transit(unit));
  crossings_.push_back({unit, values, start_all_reduce(values, *ranks_.across(), op())});
}

/// Waits for the averages over the copies.
void ShardReducer::end_crossings() {
  for (const Crossing& crossing : std::exchange(crossings_, {})) {
    ranks_.across()->wait(crossing.ticket);
    const at::Tensor& slice = slices_[crossing.unit];
    if (!crossing.values.is_same(slice)) slice.copy_(crossing.values);
  }
}

// ---- Slices

void ShardReducer::finish() {
  if (!is_open_) return;
  flush();
  settle_all();
  for (std::size_t u = units_.size(); u > 0; --u) cross(u - 1);  // those of a step without a last micro-batch
  end_crossings();
  is_open_ = false;
  ranks_.all().all_reduce(is_used_.data(), is_used_.size(), DType::uint8, mpi::ReduceOp::max);
  is_sliced_ = true;
}

std::int64_t ShardReducer::in_slice(std::size_t parameter, std::int64_t element) const {
  const auto [unit, offset] = positions_[parameter];
  return offset + element - units_[unit].begin(collectives_.rank());
}

void ShardReducer::begin_change(std::size_t unit) {
  if (host_slices_) host_slices_->forget(unit);
}

void ShardReducer::send_to_host(std::size_t unit) {
  if (host_slices_ && host_slices_->begin(unit)) host_slices_->start(unit, 0, slices_[unit]);
}

const at::Tensor& ShardReducer::on_host(std::size_t unit) {
  if (slices_[unit].is_cpu()) return slices_[unit];
  if (!host_slices_) {
    std::vector<at::Tensor> memory;
    for (const at::Tensor& slice : slices_) memory.push_back(page_locked(slice.numel(), slice.scalar_type()));
    host_slices_ = std::make_unique<HostCopies>(slices_.front().device(), std::move(memory));
  }
  for (std::size_t u = 0; u < units_.size(); ++u) send_to_host(u);
  return host_slices_->get(unit);
}

void ShardReducer::visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit,
                         bool /*keeps*/) {
  if (begin == end) return;
  const std::size_t unit = positions_[parameter].unit;
  const auto first = static_cast<std::size_t>(in_slice(parameter, begin)) * size_of(units_[unit].dtype);
  visit(begin, end - begin, bytes_of(on_host(unit)).data() + first);
}

at::Tensor ShardReducer::part_of(std::size_t parameter, std::int64_t begin, std::int64_t end) const {
  const at::Tensor& slice = slices_[positions_[parameter].unit];
  return begin == end ? slice.narrow(0, 0, 0) : slice.narrow(0, in_slice(parameter, begin), end - begin);
}

void ShardReducer::release() noexcept {
  is_sliced_ = false;
  std::fill(is_used_.begin(), is_used_.end(), std::uint8_t{0});
  std::fill(contributions_.begin(), contributions_.end(), 0);
  std::fill(has_crossed_.begin(), has_crossed_.end(), char{0});
  if (host_slices_) host_slices_->forget_all();
}

void ShardReducer::reset(GivenUp /*what*/) {
  settle_all();
  end_crossings();
  is_open_ = false;
  for (const NamedParameter& parameter : parameters_) parameter.tensor.mutable_grad().reset();
  begin_round();
  release();
}

}  // namespace lockstep::parallel
