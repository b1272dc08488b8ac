// SPDX-License-Identifier: BSD-3-Clause
#include "engine/train_keys.hpp"

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>

#include "data/mixing.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/settings/batch_layout.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/settings/run_bounds.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/param_dtype.hpp"
#include "engine/setup/precision.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

KeySpecs train_keys(const Registry& registry) {
  // Whoever makes a TimeLimit of it reads it.
  const KeySpec time_limit =
      keys::text("train.time_limit", "",
                 "Time limit in seconds or as H:MM:SS, measured from the start. The run saves a checkpoint before the "
                 "limit and exits with 75. If empty, the limit of the Slurm job applies");
  const KeySpecs tables_of_rows = {
      step_key(registry.steps), hooks_key(registry.hooks),
      metrics_key("train.metrics", "NAME,option=value: a metric of the training samples, computed over each epoch",
                  registry.meters)};
  KeySpecs keys;
  for (const KeySpecs& more :
       {BatchSettings::keys(), RunBounds::keys(), KeySpecs{time_limit}, ClipSettings::keys(), Precision::keys(),
        ParamDtypeSettings::keys(), data::MixSettings::keys(), tables_of_rows, NonfiniteSettings::keys()}) {
    keys.insert(keys.end(), more.begin(), more.end());
  }
  return keys;
}

}  // namespace lockstep::engine
