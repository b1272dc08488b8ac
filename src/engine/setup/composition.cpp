// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/composition.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/layers.hpp>

#include <algorithm>
#include <optional>
#include <vector>

#include "engine/settings/agreed.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/finetune.hpp"
#include "models/layers/initial_values.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

/// The stage of sharding; 0 = none.
int stage_of(const StrategySettings& settings, int world_size) {
  return chosen_strategy(settings, world_size).lay_out == nullptr ? 0 : settings.stage;
}

/// The setting with which ranks communicate in forward or backward passes, so that they require equal numbers of them;
/// empty = none.
std::string cite_of_common_passes(const Sections& sections, int stage) {
  if (sections.at("ddp").boolean("sync_batch_norm")) return sections.at("ddp").cite("sync_batch_norm");
  return stage > 1 ? sections.at("strategy").cite("stage") : "";
}

/// @throws ConfigError  a setting that lanes cannot be combined with
void require_lanes_supported(const Cited<std::int64_t>& lanes, bool has_gpu, int stage, const optim::Rule& rule) {
  if (lanes.value == 0) return;
  if (has_gpu) {
    throw ConfigError(lanes.cite +
                      ": lanes require the CPU, because NCCL sums in an order that depends on the number of ranks; use "
                      "run.device=cpu");
  }
  const std::string fault = lanes.cite + " cannot be combined with strategy.stage=" + std::to_string(stage);
  if (stage > 1) {
    throw ConfigError(fault +
                      ": lanes are summed as whole gradients, of which this stage keeps slices only; use "
                      "strategy.stage=1");
  }
  if (stage == 1 && rule.is_whole()) {
    throw ConfigError(fault + " and optim.name=" + rule.name +
                      ": each parameter has one owner, and the order of sums depends on the number of ranks; use "
                      "strategy.name=ddp");
  }
}

/// Refuses what cannot be combined: lanes, parts and post-local SGD exclude some settings. Not collective; the same on
/// every rank.
/// @throws ConfigError  with the settings
void require_training_settings(const Sections& sections, const Registry& registry, const Resources& resources) {
  const StrategySettings strategy = StrategySettings::from(sections.at("strategy"));
  const optim::Rule& rule = chosen_rule(sections.at("optim"), registry.rules);
  require_lanes_supported(BatchSettings::from(sections.at("train")).lanes, resources.device.is_cuda(),
                          stage_of(strategy, resources.world.size()), rule);
  training_layout(sections, resources.world);
  require_parts(sections, registry);
  require_post_local(strategy.post_local, sections, rule.uses_closure());
}

bool has_batch_norm(const models::Model& model) {
  const auto modules = model.modules();
  return std::any_of(modules.begin(), modules.end(), [](const auto& module) {
    return dynamic_cast<const models::BatchNorm*>(module.get()) != nullptr;
  });
}

/// How a model that only predicts is laid out: each rank holds all of it.
StrategySettings strategy_settings(const Sections& sections, Purpose purpose) {
  return purpose == Purpose::prediction ? StrategySettings{} : StrategySettings::from(sections.at("strategy"));
}

/// Section `ddp` is about gradients: other models have its defaults.
Section ddp_section(const Sections& sections, Purpose purpose, const Registry& registry) {
  return purpose == Purpose::training ? sections.at("ddp")
                                      : Section::with_defaults("ddp", parallel::ddp_keys(registry.comm_hooks));
}

/// Builds one model of a run.
class ModelMaker {
 public:
  ModelMaker(const Resources& resources, const Sections& sections, const Registry& registry,
             const ModelRequest& request)
      : resources_(resources),
        sections_(sections),
        registry_(registry),
        request_(request),
        settings_(strategy_settings(sections, request.purpose)),
        row_(chosen_strategy(settings_, resources.world.size())) {}

  WrappedModel make(const Task& task) const {
    WrappedModel made;
    resources_.world.all_or_throw([&] { read_settings(made); });
    if (made.precision.name.value == "tf32" && !resources_.device.is_cuda()) {
      log::info("train.precision=tf32 requires a GPU: this run computes in float32");
    }
    if (is_trained() && !settings_.post_local.averages.value.empty()) {
      made.comm_hook = "post_local";
      made.post_local = std::make_unique<PostLocal>(settings_.post_local, resources_.world, *resources_.collectives);
    }
    std::optional<models::PendingValues> pending;
    // Copies of higher precision and local averages begin with the initial values.
    if (request_.is_loaded && !(is_trained() && made.param_dtype.is_half()) && !made.post_local) pending.emplace();
    std::shared_ptr<models::Model> model;
    resources_.world.all_or_throw([&] {
      model = build(made, task);
      for (const at::Tensor& parameter : model->parameters()) made.parameter_count += parameter.numel();
      if (is_trained()) made.plans = plan_parts(sections_, registry_, *model, resources_.world.size());
    });
    made.wrapper = wrap(std::move(model), options(made));
    return made;
  }

 private:
  bool is_trained() const { return request_.purpose == Purpose::training; }

  void read_settings(WrappedModel& made) const {
    const Section& train = sections_.at("train");
    made.precision = is_trained() ? Precision::from(train) : Precision::without_scaling(train);
    made.param_dtype =
        is_trained() ? ParamDtypeSettings::from(train) : ParamDtypeSettings{.dtype = cited_text(train, "param_dtype")};
    const bool uses_closure = is_trained() && chosen_rule(sections_.at("optim"), registry_.rules).uses_closure();
    require_param_dtype(made.param_dtype, sections_, uses_closure);
    if (is_trained()) require_training_settings(sections_, registry_, resources_);
    if (row_.require != nullptr) row_.require(settings_, resources_.world.size());
    made.comm_hook = ddp_section(sections_, request_.purpose, registry_).text("comm_hook");
  }

  std::shared_ptr<models::Model> build(const WrappedModel& made, const Task& task) const {
    const Section loss = request_.purpose == Purpose::prediction
                             ? Section::with_defaults("loss", models::loss_keys(registry_.losses))
                             : sections_.at("loss");
    const std::shared_ptr<models::Model> model = request_.given
                                                     ? request_.given
                                                     : models::build(sections_.at("model"), task, resources_.draws.seed,
                                                                     made.precision.parameters, registry_.models);
    model->set_loss(models::make_loss(loss, task, registry_.losses));
    if (is_trained()) choose_trained(*model, FinetuneSettings::from(sections_.at("finetune")));
    if (made.param_dtype.is_half()) narrow_parameters(*model);
    model->to(resources_.device);
    return model;
  }

  parallel::DdpOptions options(const WrappedModel& made) const {
    parallel::DdpOptions options = parallel::DdpOptions::from(ddp_section(sections_, request_.purpose, registry_),
                                                              *resources_.collectives, registry_.comm_hooks);
    options.hosts = mpi::CommSettings::from(sections_.at("comm")).hosts;
    options.autocast = made.precision.autocast;
    options.recompute = models::ModelSettings::from(sections_.at("model")).recompute;
    if (row_.lay_out != nullptr) row_.lay_out(settings_, options);
    options.sharding.is_as_on_gpu = resources_.is_as_on_gpu;
    if (is_trained()) add_training_options(made, options);
    return options;
  }

  void add_training_options(const WrappedModel& made, parallel::DdpOptions& options) const {
    options.lanes = static_cast<int>(training_layout(sections_, resources_.world).lanes);
    const bool is_on_gpu = resources_.device.is_cuda() || resources_.is_as_on_gpu;
    const bool by_tensors = is_on_gpu && !options.sharding.offloads;
    options.sharding.owns_whole_parameters =
        std::any_of(made.plans.parts.begin(), made.plans.parts.end(), [by_tensors](const PartPlan& part) {
          return by_tensors ? part.rule->is_whole_on_gpu() : part.rule->is_whole();
        });
    options.parts = made.plans.numbers;
    options.separates_parts = made.plans.has_parts() && separates_parts(sections_, registry_);
    if (!made.post_local) return;
    options.shares_parameters = false;
    options.comm_hook = [averages = &made.post_local->averages()](mpi::Collectives&) { return averages->choice(); };
  }

  std::unique_ptr<parallel::DistributedDataParallel> wrap(std::shared_ptr<models::Model> model,
                                                          const parallel::DdpOptions& options) const {
    if (is_trained()) warn_of_small_statistics(*model);
    if (row_.is_alone) {
      return std::make_unique<parallel::DataParallel>(std::move(model), std::vector<at::Device>{resources_.device},
                                                      resources_.world, *resources_.collectives, options);
    }
    return std::make_unique<parallel::DistributedDataParallel>(std::move(model), resources_.world,
                                                               *resources_.collectives, options);
  }

  void warn_of_small_statistics(const models::Model& model) const {
    const BatchLayout layout = training_layout(sections_, resources_.world);
    if (layout.micro_batches <= 1 || layout.lanes > 0 || !has_batch_norm(model)) return;
    log::warning(
        "train.micro_batch: batch norm uses the statistics of each micro-batch, so results differ from those of one "
        "forward pass");
  }

  const Resources& resources_;
  const Sections& sections_;
  const Registry& registry_;
  const ModelRequest& request_;
  StrategySettings settings_;
  const StrategyRow& row_;
};

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

BatchLayout training_layout(const Sections& sections, const mpi::Communicator& world) {
  const int stage = stage_of(StrategySettings::from(sections.at("strategy")), world.size());
  return layout_of(BatchSettings::from(sections.at("train")), world.rank(), world.size(),
                   cite_of_common_passes(sections, stage));
}

WrappedModel make_wrapped_model(const Resources& resources, const Sections& sections, const Registry& registry,
                                const Task& task, const ModelRequest& request) {
  return ModelMaker(resources, sections, registry, request).make(task);
}

optim::BaseOptimWrapper& Updates::all() noexcept {
  if (has_parts) return parts;
  return first();
}

Updates make_updates(const Resources& resources, const WrappedModel& model, const Sections& sections,
                     const Registry& registry) {
  ScheduleSettings schedule = agreed(resources.world, [&] { return ScheduleSettings::from(sections.at("sched")); });
  return {.parts = make_optimizers(resources, model, sections),
          .has_parts = model.plans.has_parts(),
          .average = make_average(resources, model, sections.at("ema"), registry),
          .schedule = ScheduleControl(std::move(schedule), registry.curves)};
}

}  // namespace lockstep::engine
