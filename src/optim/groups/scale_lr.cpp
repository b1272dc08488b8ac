// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "optim/groups/param_groups.hpp"

namespace lockstep::optim {

KeySpecs LrScaleSettings::keys() {
  return {keys::boolean("optim.auto_scale_lr", "false",
                        "Multiply the learning rates by the batch size divided by optim.base_batch_size"),
          keys::integer("optim.base_batch_size", "0",
                        "Batch size for which optim.lr was chosen; required by optim.auto_scale_lr", 0, 1 << 30),
          keys::choice("optim.lr_scaling", "linear",
                       "Factor of optim.auto_scale_lr: the ratio of the batch sizes, or its square root",
                       {"linear", "sqrt"}),
          keys::boolean("optim.include_accumulation", "true",
                        "optim.auto_scale_lr uses the batch size of a complete step. If false, gradient accumulation "
                        "is not counted, only one forward pass of all ranks")};
}

LrScaleSettings LrScaleSettings::from(const Section& optim) {
  LrScaleSettings settings{.includes_accumulation = optim.boolean("include_accumulation"),
                           .is_square_root = optim.text("lr_scaling") == "sqrt"};
  if (!optim.boolean("auto_scale_lr")) return settings;
  settings.base_batch = optim.integer("base_batch_size");
  if (settings.base_batch > 0) return settings;
  throw ConfigError(optim.cite("auto_scale_lr") +
                    " requires optim.base_batch_size, the batch size for which optim.lr was chosen");
}

LrScale lr_scale(const Section& optim, std::int64_t samples_per_step, std::int64_t samples_per_forward) {
  const LrScaleSettings settings = LrScaleSettings::from(optim);
  return {.batch = settings.includes_accumulation ? samples_per_step : samples_per_forward,
          .base_batch = settings.base_batch,
          .is_square_root = settings.is_square_root};
}

double LrScale::factor() const {
  if (base_batch == 0) return 1;
  const double ratio = static_cast<double>(batch) / static_cast<double>(base_batch);
  return is_square_root ? std::sqrt(ratio) : ratio;
}

void scale_lr(std::span<ParamGroup> groups, const LrScale& scale) {
  const bool is_late = std::any_of(groups.begin(), groups.end(), [](const ParamGroup& g) { return g.is_scheduled; });
  if (is_late) throw std::logic_error("scale_lr: a schedule already changes the learning rates; scale them first");
  for (ParamGroup& group : groups) {
    group.base_lr *= scale.factor();
    group.options.at("lr") *= scale.factor();
  }
}

}  // namespace lockstep::optim
