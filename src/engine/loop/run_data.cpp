// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_data.hpp>

#include <algorithm>

namespace lockstep::engine {

data::Share BatchLayout::positions_of(std::int64_t part) const {
  // As many samples as possible, but each later part has at least one.
  const auto begin = [this](std::int64_t k) { return std::min(k * micro_batch_size, share.count - micro_batches + k); };
  return {share.begin + begin(part), begin(part + 1) - begin(part)};
}

std::vector<batch::Draw> RunData::draws_of(std::int64_t position, std::int64_t part) const {
  const std::int64_t steps = sampler_.steps_per_epoch();
  return sampler_.draws(position / steps, position % steps, layout_.positions_of(part));
}

std::unique_ptr<data::Loader> RunData::open_loader(const Progress& progress) const {
  const std::int64_t first = progress.epoch * progress.steps_per_epoch + progress.step_in_epoch;
  const std::int64_t steps = std::max<std::int64_t>(0, progress.total_steps - progress.step);
  const std::int64_t parts = layout_.micro_batches;
  const auto micro_batch = [this, parts](std::int64_t k) { return draws_of(k / parts, k % parts); };
  return std::make_unique<data::Loader>(splits_.train, micro_batch, first * parts, (first + steps) * parts, loader_);
}

}  // namespace lockstep::engine
