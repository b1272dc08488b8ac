// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/updates.hpp"

#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>

#include <utility>
#include <vector>

#include "engine/setup/optimizer.hpp"
#include "engine/setup/training_layout.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

std::vector<optim::ModelAverage::NamedBuffer> buffers_in(const models::Model& model) {
  std::vector<optim::ModelAverage::NamedBuffer> buffers;
  for (const auto& item : model.named_buffers()) buffers.push_back({item.key(), item.value()});
  return buffers;
}

optim::OptimWrapperDict make_optimizers(const Resources& resources, const WrappedModel& model,
                                        const Sections& sections) {
  parallel::ParameterStore& store = model.wrapper->store();
  const std::int64_t micro_batches = training_layout(sections, resources.world).micro_batches;
  std::vector<optim::OptimWrapper::WrapperOptions> options;
  resources.world.all_or_throw([&] {
    for (const PartPlan& part : model.plans.parts) {
      options.push_back(update_options(sections, model.precision, micro_batches, *part.rule));
      if (part.rule->is_whole()) store.own_whole_parameters();  // here all ranks refuse together
    }
  });
  if (resources.world.is_root()) {
    for (const std::string& remark : model.plans.remarks) log::warning(remark);
    for (const std::string& scaling : model.plans.scalings) log::info(scaling);
  }
  optim::OptimWrapperDict optimizers;
  for (std::size_t p = 0; p < model.plans.parts.size(); ++p) {
    const PartPlan& part = model.plans.parts[p];
    optim::FlatParameters& parameters = model.plans.has_parts() ? model.wrapper->part(p) : model.wrapper->parameters();
    optim::Optimizer optimizer(*part.rule, part.groups, parameters,
                               model.param_dtype.half_options(resources.draws.seed));
    optimizers.add(part.name, {std::move(optimizer), parameters, options[p]});
  }
  return optimizers;
}

std::unique_ptr<optim::ModelAverage> make_average(const Resources& resources, const WrappedModel& model,
                                                  const Section& ema, const Registry& registry) {
  const optim::AverageRule* rule = nullptr;
  optim::AverageOptions options;
  resources.world.all_or_throw([&] {
    rule = optim::find_average(ema, registry.averages);
    options = optim::AverageOptions::from(ema);
  });
  if (rule == nullptr) return nullptr;
  return std::make_unique<optim::ModelAverage>(
      *rule, options, model.wrapper->store(), [wrapper = model.wrapper.get()] { return buffers_in(wrapper->model()); });
}

}  // namespace

optim::BaseOptimWrapper& Updates::all() noexcept {
  if (has_parts) return parts;
  return first();
}

Updates make_updates(const Resources& resources, const WrappedModel& model, const Sections& sections,
                     const Registry& registry) {
  return {.parts = make_optimizers(resources, model, sections),
          .has_parts = model.plans.has_parts(),
          .average = make_average(resources, model, sections.at("ema"), registry),
          .schedule = ScheduleControl(ScheduleSettings::from(sections.at("sched")), registry.curves)};
}

}  // namespace lockstep::engine
