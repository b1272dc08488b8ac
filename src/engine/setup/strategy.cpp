// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/strategy.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/log/log.hpp>
#include <lockstep/parallel/data_parallel.hpp>

#include <algorithm>
#include <utility>

#include "batch/nvtx_range.hpp"
#include "data/source/settings.hpp"
#include "engine/settings/batch_layout.hpp"
#include "engine/settings/process.hpp"
#include "engine/setup/finetune.hpp"
#include "engine/setup/model.hpp"
#include "engine/setup/optimizer.hpp"
#include "engine/setup/param_groups.hpp"
#include "engine/setup/post_local.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

namespace {

const optim::Rule& configured_rule(const Sections& sections, const Registry& registry) {
  return chosen_rule(sections.at("optim"), registry.rules);
}

/// The stage of sharding; 0 = none.
int stage_of(const StrategyRow& row, const StrategySettings& settings) {
  parallel::DdpOptions options;
  if (row.lay_out != nullptr) row.lay_out(settings, options);
  return options.sharding.stage;
}

/// The setting with which ranks communicate in forward or backward passes, so that they require equal numbers of them;
/// empty = none.
std::string cite_of_common_passes(const Sections& sections, const StrategyRow& row, const StrategySettings& settings) {
  if (sections.at("ddp").boolean("sync_batch_norm")) return sections.at("ddp").cite("sync_batch_norm");
  return stage_of(row, settings) > 1 ? sections.at("strategy").cite("stage") : "";
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

}  // namespace

Strategy::Strategy(const Sections& sections, const mpi::Communicator& world, const StrategyRow& row,
                   const Registry& registry, std::shared_ptr<const mpi::Gpu> stand_in)
    : sections_(sections),
      world_(&world),
      row_(&row),
      registry_(&registry),
      settings_(StrategySettings::from(sections.at("strategy"))),
      comm_hook_(sections.at("ddp").text("comm_hook")),
      gpu_(std::move(stand_in)),
      is_stand_in_(gpu_ != nullptr) {
  const Section& train = sections.at("train");
  const RunSettings run = RunSettings::from(sections.at("run"));
  const BatchSettings batch = BatchSettings::from(train);
  const bool has_lanes = batch.lanes.value > 0;
  const Processor processor =
      choose_processor(run, world, has_lanes, data::DataSettings::from(sections.at("data")).workers);
  if (processor.gpu) device_ = at::Device(at::kCUDA, static_cast<at::DeviceIndex>(processor.gpu->index()));
  if (!gpu_) gpu_ = processor.gpu;
  if (device_.is_cuda()) batch::enable_nvtx_ranges();
  compiles_ = run.compile;
  if (compiles_ && gpu_) world.all_or_throw([this] { mpi::StepGraph::use_stream(*gpu_); });
  threads_ = processor.threads;
  loader_threads_ = processor.loader_threads;
  processors_ = processor.processors;
  draws_ = {.seed = run.seed, .rank = run.draws_by_rank ? static_cast<std::uint64_t>(world.rank()) : 0};
  world.all_or_throw([&] {
    tf32_ = products_in_tf32(run.tf32, cited_text(train, "precision"), device_);
    set_float32_products(tf32_);
    set_up_process(run, world.is_root());
    precision_ = Precision::from(train);
    param_dtype_ = ParamDtypeSettings::from(train);
    require_param_dtype(param_dtype_, sections_, configured_rule(sections_, registry).uses_closure());
    require_lanes_supported(batch.lanes, processor.gpu != nullptr, stage_of(row, settings_),
                            configured_rule(sections_, registry));
    layout_ = layout_of(batch, world.rank(), world.size(), cite_of_common_passes(sections, row, settings_));
  });
  if (precision() == "tf32" && !device_.is_cuda()) {
    log::info("train.precision=tf32 requires a GPU: this run computes in float32");
  }
  mpi::CommSettings comm = mpi::CommSettings::from(sections.at("comm"));
  comm.gpu = gpu_;
  collectives_ = mpi::make_collectives(world, comm);
  if (row.require != nullptr) world.all_or_throw([&] { row.require(settings_, world.size()); });
  world.all_or_throw([&] {
    require_parts(sections_, *registry_);
    require_post_local(settings_.post_local, sections_, configured_rule(sections_, registry).uses_closure());
  });
  if (!settings_.post_local.averages.value.empty()) {
    comm_hook_ = "post_local";
    post_local_ = std::make_unique<PostLocal>(settings_.post_local, world, *collectives_);
  }
}

Strategy::~Strategy() = default;

parallel::PostLocalSgd* Strategy::post_local() noexcept { return post_local_ ? &post_local_->averages() : nullptr; }

Strategy& Strategy::prepare(const Task& task, Overrides overrides) {
  if (is_prepared()) return *this;
  std::shared_ptr<models::Model> model;
  world_->all_or_throw([&] { model = build_model(task, std::move(overrides.model)); });
  for (const at::Tensor& parameter : model->parameters()) parameter_count_ += parameter.numel();
  PartPlans plans;
  world_->all_or_throw([&] {
    if (overrides.rule == nullptr) {
      plans = plan_parts(sections_, *registry_, *model, world_->size());
    } else {
      plans.parts.push_back({.name = "", .rule = overrides.rule, .groups = std::move(overrides.groups)});
    }
  });
  wrap(std::move(model), plans);
  build_optimizers(std::move(plans));
  build_average();
  return *this;
}

std::shared_ptr<models::Model> Strategy::build_model(const Task& task, std::shared_ptr<models::Model> given) const {
  const std::shared_ptr<models::Model> model =
      given ? std::move(given)
            : models::build(sections_.at("model"), task, seed(), precision_.parameters, registry_->models);
  model->set_loss(models::make_loss(sections_.at("loss"), task, registry_->losses));
  choose_trained(*model, FinetuneSettings::from(sections_.at("finetune")));
  if (param_dtype_.is_half()) narrow_parameters(*model);
  model->to(device_);
  return model;
}

optim::BaseOptimWrapper& Strategy::step_optimizer() noexcept {
  if (has_parts_) return parts_;
  return optimizer();
}

void Strategy::wrap(std::shared_ptr<models::Model> model, const PartPlans& plans) {
  if (layout_.micro_batches > 1 && layout_.lanes == 0 && has_batch_norm(*model)) {
    log::warning(
        "train.micro_batch: batch norm uses the statistics of each micro-batch, so results differ from those of one "
        "forward pass");
  }
  parallel::DdpOptions options =
      wrapper_options(sections_, precision_, layout_.lanes, *row_, settings_, *collectives_, registry_->comm_hooks);
  options.sharding.is_as_on_gpu = options.sharding.is_as_on_gpu || is_stand_in_;
  const bool by_tensors = (device_.is_cuda() || options.sharding.is_as_on_gpu) && !options.sharding.offloads;
  options.sharding.owns_whole_parameters = std::any_of(
      plans.parts.begin(), plans.parts.end(),
      [by_tensors](const PartPlan& part) { return by_tensors ? part.rule->is_whole_on_gpu() : part.rule->is_whole(); });
  options.parts = plans.numbers;
  options.separates_parts = plans.has_parts() && separates_parts(sections_, *registry_);
  if (post_local_) {
    options.shares_parameters = false;
    options.comm_hook = [this](mpi::Collectives&) { return post_local_->averages().choice(); };
  }
  if (row_->is_alone) {
    model_ = std::make_unique<parallel::DataParallel>(std::move(model), std::vector<at::Device>{device_}, *world_,
                                                      *collectives_, options);
  } else {
    model_ = std::make_unique<parallel::DistributedDataParallel>(std::move(model), *world_, *collectives_, options);
  }
}

void Strategy::build_optimizers(PartPlans plans) {
  parallel::ParameterStore& store = model_->store();
  std::vector<optim::OptimWrapper::WrapperOptions> options;
  world_->all_or_throw([&] {
    for (const PartPlan& part : plans.parts) {
      options.push_back(update_options(sections_, precision_, layout_.micro_batches, *part.rule));
      if (part.rule->is_whole()) store.own_whole_parameters();  // here all ranks refuse together
    }
  });
  if (world_->is_root()) {
    for (const std::string& remark : plans.remarks) log::warning(remark);
    for (const std::string& scaling : plans.scalings) log::info(scaling);
  }
  has_parts_ = plans.has_parts();
  for (std::size_t p = 0; p < plans.parts.size(); ++p) {
    PartPlan& part = plans.parts[p];
    optim::FlatParameters& parameters = has_parts_ ? model_->part(p) : model_->parameters();
    optim::Optimizer optimizer(*part.rule, std::move(part.groups), parameters, param_dtype_.half_options(seed()));
    parts_.add(part.name, {std::move(optimizer), parameters, options[p]});
  }
}

void Strategy::build_average() {
  const optim::AverageRule* average = nullptr;
  optim::AverageOptions options;
  world_->all_or_throw([&] {
    average = optim::find_average(sections_.at("ema"), registry_->averages);
    options = optim::AverageOptions::from(sections_.at("ema"));
  });
  if (average == nullptr) return;
  average_ = std::make_unique<optim::ModelAverage>(*average, options, model_->store(),
                                                   [this] { return buffers_in(model_->model()); });
}

std::unique_ptr<Strategy> make_strategy(const Sections& sections, const mpi::Communicator& world,
                                        const Registry& registry) {
  const StrategySettings settings = StrategySettings::from(sections.at("strategy"));
  return std::make_unique<Strategy>(sections, world, chosen_strategy(settings, world.size()), registry);
}

}  // namespace lockstep::engine
