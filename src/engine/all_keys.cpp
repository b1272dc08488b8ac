// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include "core/text/table.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/session.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/process.hpp"
#include "engine/settings/saving_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/init_from.hpp"
#include "engine/setup/strategy_table.hpp"
#include "engine/setup/teacher.hpp"
#include "engine/state/resume_settings.hpp"
#include "engine/train_keys.hpp"
#include "optim/averages/model_average.hpp"

namespace lockstep::engine {

namespace {

/// Key `resume`, which is in no section, comes before the keys of section `init`, and section `resume` after them.
KeySpecs resume_keys() {
  KeySpecs keys = ResumeSettings::keys();
  const KeySpecs init = InitSettings::keys();
  keys.insert(keys.begin() + 1, init.begin(), init.end());
  return keys;
}

}  // namespace

const Registry& builtin_registry() {
  static const Registry registry;
  return registry;
}

KeySpecs all_keys(const Registry& registry) {
  const auto joined = [](KeySpecs keys, const std::vector<KeySpecs>& lists) {
    for (const KeySpecs& more : lists) keys.insert(keys.end(), more.begin(), more.end());
    return keys;
  };
  const KeySpecs own = joined(RunSettings::keys(), {train_keys(registry), EvalSettings::keys(registry.meters),
                                                    LogSettings::keys(), SavingSettings::keys(), resume_keys()});
  return joined(
      keys_of_rows(own, registry.steps),
      {data::data_keys(registry.sources, registry.samplers), models::model_keys(registry.models),
       models::loss_keys(registry.losses), distill_keys(), FinetuneSettings::keys(), optim::optim_keys(registry.rules),
       optim::ema_keys(registry.averages), schedule::sched_keys(registry.curves),
       parallel::ddp_keys(registry.comm_hooks), mpi::CommSettings::keys(), StrategySettings::keys()});
}

}  // namespace lockstep::engine
