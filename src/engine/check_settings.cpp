// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/registry.hpp>

#include "core/keys/cited.hpp"
#include "core/text/table.hpp"
#include "data/source/settings.hpp"
#include "engine/evaluation/evaluation.hpp"
#include "engine/hooks/hooks.hpp"
#include "engine/session.hpp"
#include "engine/settings/log_settings.hpp"
#include "engine/settings/nonfinite.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/saving_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/precision.hpp"
#include "engine/setup/strategy.hpp"
#include "engine/state/resume_settings.hpp"
#include "schedule/named_schedule.hpp"

namespace lockstep::engine {

namespace {

/// Looks up the names that select a row of a table.
void check_names(const Sections& sections, const Registry& registry) {
  const auto check = [&](const auto& rows, const std::string& section, const std::string& key) {
    find_row(rows, sections.at(section).text(key), sections.at(section).cite(key));
  };
  const Section& data = sections.at("data");
  const data::DataSettings settings = data::DataSettings::from(data);
  find_row(registry.sources, settings.source, data.cite("name"));
  find_row(registry.samplers, settings.sampler, data.cite("sampler"));
  check(registry.models, "model", "name");
  check(registry.losses, "loss", "name");
  check(registry.rules, "optim", "name");
  check(registry.steps, "train", "step_kind");
  for (const char* section : {"train", "eval"}) {
    const auto [metrics, place] = cited_texts(sections.at(section), "metrics");
    for (const std::string& metric : metrics) {
      choose_row(registry.meters, metric, metrics::common_meter_keys(), place, place);
    }
  }
  const Section& sched = sections.at("sched");
  schedule::check_rules(schedule::rules_of(sched), schedule::origin_of_rules(sched), registry.curves);
  const auto [hooks, place] = cited_texts(sections.at("train"), "hooks");
  for (const std::string& hook : hooks) find_row(registry.hooks, entry_parts(hook).front(), place);
}

}  // namespace

void check_settings(const Sections& sections, const Registry& registry) {
  const Section& train = sections.at("train");
  RunSettings::from(sections.at("run"));
  check_names(sections, registry);
  BatchSettings::from(train);
  RunBounds::from(train);
  time_limit_of(train);
  Precision::from(train);
  ParamDtypeSettings::from(train);
  ClipSettings::from(train);
  NonfiniteSettings::from(train);
  StrategySettings::from(sections.at("strategy"));
  FinetuneSettings::from(sections.at("finetune"));
  EmaSettings::from(sections.at("ema"));
  EvalSettings::from(sections.at("eval"));
  LogSettings::from(sections.at("log"));
  SavingSettings::from(sections.at("ckpt"));
  ResumeSettings::from(sections);
  for (const HookRow& row : builtin_hooks()) make_hooks(sections, builtin_hooks(), row.name);
}

}  // namespace lockstep::engine
