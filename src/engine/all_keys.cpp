// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include "core/text/table.hpp"
#include "data/mixing.hpp"
#include "data/stores/image_settings.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/session.hpp"
#include "engine/settings/buffer_settings.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/saving_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/rollout.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/setup/teacher.hpp"
#include "engine/state/resume_settings.hpp"
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

namespace {

KeySpecs together(const std::vector<KeySpecs>& lists) {
  KeySpecs keys;
  for (const KeySpecs& list : lists) keys.insert(keys.end(), list.begin(), list.end());
  return keys;
}

/// Key `resume`, which is in no section, comes before the keys of section `init`, and section `resume` after them.
KeySpecs resume_keys() {
  KeySpecs keys = ResumeSettings::keys();
  const KeySpecs init = InitSettings::keys();
  keys.insert(keys.begin() + 1, init.begin(), init.end());
  return keys;
}

/// The keys of section `train`, of each part that it configures, without those of the steps' own.
KeySpecs train_keys(const Registry& registry) {
  const KeySpecs tables_of_rows = {
      step_key(registry.steps), hooks_key(registry.hooks),
      metrics_key("train.metrics", "NAME,option=value: a metric of the training samples, computed over each epoch",
                  registry.meters)};
  return together({BatchSettings::keys(), RunBounds::keys(), KeySpecs{time_limit_key()}, rollout_keys(),
                   ClipSettings::keys(), Precision::keys(), ParamDtypeSettings::keys(), data::MixSettings::keys(),
                   tables_of_rows, NonfiniteSettings::keys()});
}

}  // namespace

const Registry& builtin_registry() {
  static const Registry registry;
  return registry;
}

KeySpecs all_keys(const Registry& registry) {
  KeySpecs data = data::data_keys(registry.sources, registry.samplers);
  data::add_transform_forms(data, registry.transforms);
  const KeySpecs own = together({RunSettings::keys(), train_keys(registry), EvalSettings::keys(registry.meters),
                                 LogSettings::keys(), SavingSettings::keys(), resume_keys()});
  return together({keys_of_rows(own, registry.steps, {"train.step_kind"}), data, BufferSettings::keys(),
                   models::model_keys(registry.models), models::loss_keys(registry.losses), distill_keys(),
                   FinetuneSettings::keys(), optim::optim_keys(registry.rules), optim::ema_keys(registry.averages),
                   schedule::sched_keys(registry.curves), parallel::ddp_keys(registry.comm_hooks),
                   mpi::CommSettings::keys(), StrategySettings::keys()});
}

}  // namespace lockstep::engine
