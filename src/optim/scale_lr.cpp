// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/param_groups.hpp>

#include <algorithm>
#include <stdexcept>

namespace lockstep::optim {

LrScale lr_scale(const Section& optim, std::int64_t samples_per_step, std::int64_t samples_per_forward) {
  LrScale scale{.batch = optim.boolean("include_accumulation") ? samples_per_step : samples_per_forward};
  if (!optim.boolean("auto_scale_lr")) return scale;
  scale.base_batch = optim.integer("base_batch_size");
  if (scale.base_batch > 0) return scale;
  throw ConfigError(optim.cite("auto_scale_lr") + " needs optim.base_batch_size: the batch that optim.lr is meant for");
}

void scale_lr(std::span<ParamGroup> groups, const LrScale& scale) {
  const bool is_late = std::any_of(groups.begin(), groups.end(), [](const ParamGroup& g) { return g.is_scheduled; });
  if (is_late) throw std::logic_error("scale_lr: a schedule drives the learning rates already; scale them before");
  for (ParamGroup& group : groups) {
    group.base_lr *= scale.factor();
    group.options.at("lr") *= scale.factor();
  }
}

}  // namespace lockstep::optim
