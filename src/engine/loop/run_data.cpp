// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>

#include <algorithm>
#include <utility>

#include "data/mixing.hpp"

namespace lockstep::engine {

data::Share BatchLayout::positions_of(std::int64_t part) const {
  // Parts have as many samples as possible, but each later part has at least one.
  const auto begin = [this](std::int64_t k) { return std::min(k * micro_batch_size, share.count - micro_batches + k); };
  return {share.begin + begin(part), begin(part + 1) - begin(part)};
}

std::vector<batch::Draw> RunData::draws_of(std::int64_t position, std::int64_t part) const {
  const std::int64_t steps = sampler_.steps_per_epoch();
  return sampler_.draws(position / steps, position % steps, layout_.positions_of(part));
}

std::vector<batch::Draw> RunData::draws_to_mix(std::int64_t position, std::int64_t part) const {
  std::vector<batch::Draw> draws = draws_of(position, part);
  if (draws.empty()) return draws;
  const std::int64_t begin = layout_.positions_of(part).begin;
  const std::int64_t steps = sampler_.steps_per_epoch();
  const data::Share before = begin > 0 ? data::Share{begin - 1, 1} : data::Share{0, layout_.global_batch_size};
  draws.insert(draws.begin(), sampler_.draws(position / steps, position % steps, before).back());
  return draws;
}

std::unique_ptr<data::Loader> RunData::open_loader(const Progress& progress) const {
  const std::int64_t first = progress.epoch * progress.steps_per_epoch + progress.step_in_epoch;
  const std::int64_t steps = std::max<std::int64_t>(0, progress.total_steps - progress.step);
  const std::int64_t parts = layout_.micro_batches;
  data::LoaderOptions options = loader_;
  data::Loader::Plan plan = [this, parts](std::int64_t k) { return draws_of(k / parts, k % parts); };
  if (mixing_) {
    const auto step_of = [=, done = progress.step](std::int64_t k) { return done + k / parts - first; };
    const auto rule_of = [this, step_of, total = progress.total_steps](std::int64_t k) {
      return mixing_->rule_of(step_of(k), total);
    };
    plan = [this, parts, rule_of](std::int64_t k) {
      return rule_of(k) == nullptr ? draws_of(k / parts, k % parts) : draws_to_mix(k / parts, k % parts);
    };
    options.change = [this, parts, step_of, rule_of](batch::Batch batch, std::int64_t k) {
      const data::MixRule* const rule = rule_of(k);
      if (rule == nullptr || batch.size() == 0) return batch;
      return mixing_->mixed(std::move(batch), *rule, step_of(k), layout_.positions_of(k % parts).begin);
    };
  }
  return std::make_unique<data::Loader>(splits_.train, std::move(plan), first * parts, (first + steps) * parts,
                                        std::move(options));
}

}  // namespace lockstep::engine
