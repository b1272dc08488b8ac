// SPDX-License-Identifier: BSD-3-Clause
#include "embed/replay_buffer.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/random/random.hpp>

#include <torch/types.h>

#include <algorithm>

#include "core/text/text.hpp"

namespace lockstep::embed {

namespace {

using random::Stream;

std::string form_of(const at::Tensor& rows) {
  return shape_text(rows.sizes().slice(1).vec()) + " " + c10::toString(rows.scalar_type());
}

}  // namespace

void ReplayBuffer::push(const batch::Batch& batch, const std::vector<std::int64_t>& rows) {
  require_same_form(batch);
  reserve(batch, std::min(options_.capacity, pushed_ + std::ssize(rows)));
  for (const std::int64_t row : rows) {
    const std::int64_t place = next_place();
    ++pushed_;
    if (place < 0) continue;
    for (auto& [name, kept] : memory_) kept[place].copy_(batch.tensor(name)[row]);
    size_ = std::max(size_, place + 1);
  }
}

/// The place of the next sample; -1 = it is not kept. Source of the reservoir: Vitter, "Random sampling with a
/// reservoir" (1985), algorithm R.
std::int64_t ReplayBuffer::next_place() const {
  if (!options_.is_reservoir || pushed_ < options_.capacity) return pushed_ % options_.capacity;
  random::Sequence numbers(options_.seed, Stream::buffer_places, options_.number, static_cast<std::uint64_t>(pushed_));
  const auto place = static_cast<std::int64_t>(numbers.below(static_cast<std::uint64_t>(pushed_) + 1));
  return place < options_.capacity ? place : -1;
}

void ReplayBuffer::require_same_form(const batch::Batch& batch) const {
  if (memory_.empty()) return;
  for (const auto& [name, value] : batch.values()) {
    const auto known = memory_.find(name);
    if (known == memory_.end()) throw DataError("earlier samples of the buffer have no '" + name + "'");
    const std::string form = form_of(value.as<at::Tensor>());
    if (form == form_of(known->second)) continue;
    throw DataError("a sample of '" + name + "' is " + form + ", but earlier ones of the buffer are " +
                    form_of(known->second));
  }
  for (const auto& [name, kept] : memory_) {
    if (!batch.has(name)) throw DataError("earlier samples of the buffer have '" + name + "', which is missing");
  }
}

/// Memory for `rows` samples; it doubles until the capacity is reached.
void ReplayBuffer::reserve(const batch::Batch& batch, std::int64_t rows) {
  constexpr std::int64_t kFirst = 64;
  for (const auto& [name, value] : batch.values()) {
    at::Tensor& kept = memory_[name];
    const std::int64_t there = kept.defined() ? kept.size(0) : 0;
    if (rows <= there) continue;
    const at::Tensor& like = value.as<at::Tensor>();
    std::vector<std::int64_t> shape = like.sizes().vec();
    shape.front() = std::min(options_.capacity, std::max({rows, 2 * there, kFirst}));
    at::Tensor larger = at::empty(shape, at::TensorOptions(like.scalar_type()));
    if (size_ > 0) larger.narrow(0, 0, size_).copy_(kept.narrow(0, 0, size_));
    kept = std::move(larger);
  }
}

batch::ValueMap ReplayBuffer::draw(std::int64_t step, std::int64_t count) const {
  if (count == 0) return {};
  const auto size = static_cast<std::uint64_t>(size_);
  const random::Permutation order(
      size, random::bits(options_.seed, Stream::buffer_draws, options_.number, static_cast<std::uint64_t>(step)));
  std::vector<std::int64_t> rows;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    rows.push_back(static_cast<std::int64_t>(order(i % size)));
  }
  const at::Tensor chosen = at::tensor(rows, at::TensorOptions(at::kLong));
  batch::ValueMap values;
  for (const auto& [name, kept] : memory_) values[name] = kept.index_select(0, chosen);
  return values;
}

std::map<std::string, at::Tensor> ReplayBuffer::values() const {
  std::map<std::string, at::Tensor> kept;
  for (const auto& [name, rows] : memory_) kept[name] = rows.narrow(0, 0, size_);
  return kept;
}

void ReplayBuffer::restore(std::map<std::string, at::Tensor> values, std::int64_t pushed) {
  memory_ = std::move(values);
  size_ = memory_.empty() ? 0 : memory_.begin()->second.size(0);
  pushed_ = pushed;
}

}  // namespace lockstep::embed
