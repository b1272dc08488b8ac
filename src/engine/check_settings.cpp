// SPDX-License-Identifier: BSD-3-Clause
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

namespace lockstep::engine {

void check_settings(const Sections& sections) {
  const Section& train = sections.at("train");
  RunSettings::from(sections.at("run"));
  data::DataSettings::from(sections.at("data"));
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
