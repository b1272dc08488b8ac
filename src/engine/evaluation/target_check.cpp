// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/target_check.hpp"

#include <lockstep/data/dataset.hpp>

#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep::engine {

namespace {

constexpr std::size_t kAtOnce = 1024;

/// The place of the first value that is no class; the number of values = there is none.
std::size_t first_fault(std::span<const std::int64_t> values, const models::ClassRange& range) {
  const auto is_fault = [classes = static_cast<std::uint64_t>(range.classes),
                         ignored = range.ignored](std::int64_t value) -> bool {
    const bool is_outside = static_cast<std::uint64_t>(value) >= classes;
    return is_outside & (value != data::kIgnored) & (value != ignored);
  };
  for (std::size_t begin = 0; begin < values.size(); begin += kAtOnce) {
    const auto part = values.subspan(begin, std::min(kAtOnce, values.size() - begin));
    bool has_fault = false;  // masks are checked fast without a branch for each value
    for (const std::int64_t value : part) has_fault |= is_fault(value);
    if (has_fault) {
      return begin + static_cast<std::size_t>(std::find_if(part.begin(), part.end(), is_fault) - part.begin());
    }
  }
  return values.size();
}

}  // namespace

std::optional<data::SampleFault> fault_of_targets(const batch::Batch& batch, const models::ClassRange& range) {
  if (batch.size() == 0 || !batch.has_target() || !batch.at(batch.target_key()).is<at::Tensor>()) return std::nullopt;
  const at::Tensor& given = batch.target();
  if (!given.is_cpu() || !at::isIntegralType(given.scalar_type(), /*includeBool=*/false)) return std::nullopt;
  const at::Tensor target = given.to(at::kLong).contiguous();
  const std::span<const std::int64_t> values(target.const_data_ptr<std::int64_t>(),
                                             static_cast<std::size_t>(target.numel()));
  const std::size_t place = first_fault(values, range);
  if (place == values.size()) return std::nullopt;
  return data::SampleFault{.row = static_cast<std::int64_t>(place) * batch.size() / target.numel(),
                           .text = "the target " + std::to_string(values[place]) + " is not one of the " +
                                   std::to_string(range.classes) +
                                   " classes, which have the numbers from 0 on; correct the data, or set "
                                   "loss.ignore_index if such targets do not count"};
}

std::function<std::optional<data::SampleFault>(const batch::Batch&)> target_check(const models::Model& model,
                                                                                  const Task& task) {
  const models::ClassRange range = models::target_classes(model, task);
  if (range.classes == 0) return {};
  return [range](const batch::Batch& batch) { return fault_of_targets(batch, range); };
}

}  // namespace lockstep::engine
