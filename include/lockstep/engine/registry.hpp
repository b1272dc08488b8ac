// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/sampler.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/data/transform.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/meter.hpp>
#include <lockstep/models/loss.hpp>
#include <lockstep/models/model.hpp>
#include <lockstep/optim/optimizer.hpp>
#include <lockstep/optim/rule.hpp>
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/schedule/schedule.hpp>

#include <vector>

namespace lockstep::engine {

/// The tables of all parts that can be selected by name. It contains the built-in rows; a program appends its own rows
/// before it calls trainer::run.
struct Registry {
  std::vector<data::Source> sources = data::builtin_sources();
  std::vector<data::SamplerRow> samplers = data::builtin_samplers();
  std::vector<data::TransformRow> transforms = data::builtin_transforms();
  std::vector<models::ModelRow> models = models::builtin_models();
  std::vector<models::LossRow> losses = models::builtin_losses();
  std::vector<optim::Rule> rules = optim::builtin_rules();
  std::vector<optim::AverageRule> averages = optim::builtin_averages();
  std::vector<schedule::Curve> curves = schedule::builtin_curves();
  std::vector<metrics::MeterRow> meters = metrics::builtin_meters();
  std::vector<StepRow> steps = builtin_steps();
  std::vector<HookRow> hooks = builtin_hooks();
  std::vector<parallel::CommHookRow> comm_hooks = parallel::builtin_comm_hooks();
};

/// The registry with the built-in rows only.
const Registry& builtin_registry();

}  // namespace lockstep::engine
