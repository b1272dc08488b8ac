// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/wrapped_model.hpp"

#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/setup/finetune.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/strategy_table.hpp"
#include "engine/setup/training_layout.hpp"
#include "models/layers/initial_values.hpp"

namespace lockstep::engine {

namespace {

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

}  // namespace

WrappedModel make_wrapped_model(const Resources& resources, const Sections& sections, const Registry& registry,
                                const Task& task, const ModelRequest& request) {
  return ModelMaker(resources, sections, registry, request).make(task);
}

}  // namespace lockstep::engine
