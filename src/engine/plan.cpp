// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/sampler.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>

#include <algorithm>
#include <map>

#include "data/source/settings.hpp"
#include "engine/session.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/loader_memory.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/run_splits.hpp"
#include "models/layers/outline.hpp"
#include "optim/rules/option_limits.hpp"

namespace lockstep::engine {

namespace {

std::vector<RunPlan::PlannedGroup> with_counts(const PartPlan& part, const models::Model& model) {
  std::map<std::string, std::int64_t> counts;
  for (const optim::ParameterInfo& parameter : describe_parameters(model)) counts[parameter.name] = parameter.count;
  std::vector<RunPlan::PlannedGroup> described;
  for (const optim::ParamGroup& group : part.groups) {
    const std::string prefix = part.name.empty() ? "" : part.name + "/";
    described.push_back({.name = prefix + group.name, .options = group.options, .parameters = {}});
    for (const std::string& name : group.parameters) described.back().parameters.push_back({name, counts.at(name)});
  }
  return described;
}

/// Numbers of at most `points` steps from the first to the last, evenly.
std::vector<std::int64_t> sampled(std::int64_t total_steps, std::int64_t points) {
  const std::int64_t parts = std::min(points, total_steps) - 1;
  if (parts < 1) return {0};
  std::vector<std::int64_t> steps;
  for (std::int64_t i = 0; i <= parts; ++i) {
    steps.push_back(static_cast<std::int64_t>(static_cast<double>(total_steps - 1) * static_cast<double>(i) /
                                              static_cast<double>(parts)));
  }
  return steps;
}

/// The names as an optimizer of these groups keeps them.
std::vector<std::string> state_names(const optim::Rule& rule, const std::vector<optim::ParamGroup>& groups) {
  std::vector<std::string> longest;
  for (const optim::ParamGroup& group : groups) {
    std::vector<std::string> names = rule.state_names(group.options);
    if (names.size() > longest.size()) longest = std::move(names);
  }
  return longest;
}

std::vector<RunPlan::PlannedCurve> curves_of(const RunPlan::PlannedGroup& group, const schedule::GroupName& name,
                                             const schedule::Schedule& schedule, const optim::OptionLimits& limits,
                                             const std::vector<std::int64_t>& steps) {
  const std::vector<std::string> moved = schedule.moved(name, group.options);
  std::vector<std::string> options = moved;
  if (std::find(options.begin(), options.end(), "lr") == options.end()) options.insert(options.begin(), "lr");
  std::vector<RunPlan::PlannedCurve> curves;
  for (const std::string& option : options) curves.push_back({.option = option, .group = group.name, .values = {}});
  for (const std::int64_t step : steps) {
    schedule::Numbers values = group.options;
    schedule.apply(step, name, group.options, values);
    limits.require(values, moved, group.name, step);
    for (RunPlan::PlannedCurve& curve : curves) curve.values.emplace_back(step, values.at(curve.option));
  }
  return curves;
}

schedule::Schedule schedule_over(const RunPlan& plan, const PartPlans& parts, std::int64_t global_batch,
                                 const Sections& sections, const Registry& registry) {
  const ScheduleSettings sched = ScheduleSettings::from(sections.at("sched"));
  schedule::Schedule schedule = schedule::parse(
      sched.rules,
      {.total_steps = plan.total_steps, .steps_per_epoch = plan.steps_per_epoch, .samples_per_step = global_batch},
      sched.origin, registry.curves);
  std::vector<schedule::GroupName> names;
  for (const PartPlan& part : parts.parts) {
    for (const optim::ParamGroup& group : part.groups) names.emplace_back(group.name, part.name);
  }
  schedule.require_groups(names);
  return schedule;
}

/// Remarks on the loader of a rank, if all ranks run on this host.
std::vector<std::string> data_remarks(const Sections& sections, const data::Dataset& train, int world_size) {
  const BatchLayout layout = layout_of(BatchSettings::from(sections.at("train")), 0, world_size);
  const bool mixes = !sections.at("train").texts("mix").empty();
  const int prefetch = data::DataSettings::from(sections.at("data")).prefetch;
  const LoaderMemory memory{.batch_bytes = batch_bytes(loaded_layout(train, false), layout.micro_batch_size),
                            .prefetch = std::max<std::int64_t>(prefetch, 2 + layout.micro_batches),
                            .in_use = layout.micro_batches};
  std::vector<std::string> remarks;
  if (memory.is_large(world_size)) remarks.push_back(loader_memory_text(memory, world_size));
  const std::string floats = float_output_text(sections.at("data"), train, mixes);
  if (!floats.empty()) remarks.push_back(floats);
  return remarks;
}

RunPlan plan_here(const Sections& sections, const Registry& registry, int world_size, std::int64_t points) {
  const Section& train = sections.at("train");
  const std::uint64_t seed = RunSettings::from(sections.at("run")).seed;
  const std::int64_t global_batch = BatchSettings::from(train).global_batch_size.value;
  data::OpenOptions options = open_options(sections, registry);
  options.used = used_splits({"train"});
  const data::Splits splits = data::open(sections.at("data"), registry.sources, options);
  const data::Sampler sampler =
      data::make_sampler(sections.at("data"), {splits.train.get(), global_batch, seed}, registry.samplers);
  const auto model = models::outline(sections.at("model"), splits.train->task(), at::kFloat, registry.models);
  model->set_loss(models::make_loss(sections.at("loss"), splits.train->task(), registry.losses));
  choose_trained(*model, FinetuneSettings::from(sections.at("finetune")));
  require_parts(sections, registry);
  const PartPlans parts = plan_parts(sections, registry, *model, world_size);

  RunPlan plan{.groups = {},
               .curves = {},
               .remarks = parts.remarks,
               .total_steps = RunBounds::from(train).total_steps({.steps_per_epoch = sampler.steps_per_epoch()}),
               .steps_per_epoch = sampler.steps_per_epoch()};
  plan.remarks.insert(plan.remarks.end(), parts.scalings.begin(), parts.scalings.end());
  for (std::string& remark : data_remarks(sections, *splits.train, world_size)) {
    plan.remarks.push_back(std::move(remark));
  }
  const schedule::Schedule schedule = schedule_over(plan, parts, global_batch, sections, registry);
  plan.remarks.insert(plan.remarks.end(), schedule.unused().begin(), schedule.unused().end());
  if (schedule.has_feedback()) {
    plan.remarks.emplace_back(
        "a rule depends on evaluations: its values are shown for evaluations that always improve");
  }
  const std::vector<std::int64_t> steps = sampled(plan.total_steps, points);
  for (const PartPlan& part : parts.parts) {
    const optim::OptionLimits limits(*part.rule, state_names(*part.rule, part.groups));
    const std::vector<RunPlan::PlannedGroup> groups = with_counts(part, *model);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const schedule::GroupName name(part.groups[g].name, part.name);
      for (RunPlan::PlannedCurve& curve : curves_of(groups[g], name, schedule, limits, steps)) {
        plan.curves.push_back(std::move(curve));
      }
      plan.groups.push_back(groups[g]);
    }
  }
  return plan;
}

}  // namespace

RunPlan plan(const mpi::Communicator& world, const Sections& sections, const Registry& registry, std::int64_t points) {
  return agreed(world, [&] { return plan_here(sections, registry, world.size(), points); });
}

}  // namespace lockstep::engine
