// SPDX-License-Identifier: BSD-3-Clause
// The trainer with one part of a program's own that LOCKSTEP_PART chooses: its name or the names of its values are
// those of Lockstep, or its function returns nothing.
#include <lockstep/core/keys.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>

namespace {

using lockstep::Section;
using lockstep::Task;
namespace batch = lockstep::batch;
namespace data = lockstep::data;
namespace engine = lockstep::engine;
namespace metrics = lockstep::metrics;
namespace models = lockstep::models;
namespace optim = lockstep::optim;
namespace parallel = lockstep::parallel;

/// Points on a line, each with one further value if `further` is not empty.
class Points : public data::SampleDataset {
 public:
  explicit Points(std::string further = "") : further_(std::move(further)) {}
  std::int64_t size() const override { return 48; }
  Task task() const override { return {.sample_shape = {2}, .classes = 2}; }
  std::uint64_t digest() const override { return 1; }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const std::int64_t sign = draw.index % 2 == 0 ? 1 : -1;
    batch::ValueMap values = {{"data", torch::full({2}, static_cast<float>(sign))}, {"label", (sign + 1) / 2}};
    if (!further_.empty()) values[further_] = std::string("mine");
    return values;
  }

 private:
  std::string further_;
};

data::Splits points(const std::string& further = "") {
  return {.train = std::make_shared<Points>(further), .val = std::make_shared<Points>(further)};
}

class Line : public models::Model {
 public:
  /// @param loss  name of a further loss
  explicit Line(std::string loss = "") : loss_(std::move(loss)) {
    head_ = register_module("head", std::make_shared<models::Linear>(2, 2));
  }
  at::Tensor forward(const at::Tensor& points) override { return models::run(*head_, points); }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    models::LossMap losses = Model::losses(output, target);
    if (!loss_.empty()) losses.emplace_back(loss_, torch::zeros({}));
    return losses;
  }

 private:
  std::shared_ptr<models::Linear> head_;
  std::string loss_;
};

/// Puts a value named `name` in each step.
class Put : public engine::Hook {
 public:
  Put(std::string name, bool is_of_rank) : name_(std::move(name)), is_of_rank_(is_of_rank) {}
  void after_step(engine::RunView& run, const engine::StepReport&) override {
    is_of_rank_ ? run.events.put_of_rank(name_, 1) : run.events.put(name_, 1);
  }

 private:
  std::string name_;
  bool is_of_rank_;
};

/// A meter with the result `name`, whose functions give `numbers` numbers.
metrics::Meter meter(const std::string& name, std::size_t numbers = 1) {
  return {.results = {{name}},
          .words = 1,
          .add = [](const metrics::Samples&, std::span<std::int64_t>) {},
          .read =
              [numbers](std::span<const std::int64_t>) {
                return metrics::Reading{.numbers = std::vector<double>(numbers, 42.0)};
              }};
}

void add_model(engine::Registry& registry, const std::string& name, const std::string& loss = "") {
  registry.models.push_back({.name = name, .help = "", .keys = {}, .make = [loss](const Section&, const Task&) {
                               return std::shared_ptr<models::Model>(std::make_shared<Line>(loss));
                             }});
}

void add_source(engine::Registry& registry, const std::string& name, const data::Splits& splits) {
  registry.sources.push_back(
      {.name = name, .help = "", .keys = {}, .open = [splits](const Section&) { return splits; }});
}

void add_hook(engine::Registry& registry, const std::string& puts, bool is_of_rank = false) {
  registry.hooks.push_back(
      {.name = "mine",
       .help = "",
       .keys = {},
       .priority = engine::Priority::normal,
       .make = [puts, is_of_rank](const auto&, const auto&) { return std::make_unique<Put>(puts, is_of_rank); }});
}

void add_meter(engine::Registry& registry, const metrics::Meter& made) {
  registry.meters.push_back(
      {.name = "mine", .help = "", .needs = "", .keys = {}, .make = [made](const auto&, auto) { return made; }});
}

parallel::Completion no_completion(const parallel::GradBucket&) { return {}; }
parallel::Completion no_tensor(const parallel::GradBucket&) {
  return [] { return at::Tensor(); };
}
void add_comm_hook(engine::Registry& registry, const std::string& name, const parallel::CommHook& hook) {
  registry.comm_hooks.push_back({.name = name, .help = "", .keys = {}, .make = [hook](const auto&, auto&) {
                                   return parallel::ChosenHook{.hook = hook};
                                 }});
}

void add_average(engine::Registry& registry, const std::string& name, double weight) {
  registry.averages.push_back({name, "", [weight](const optim::AverageOptions&, std::int64_t) { return weight; }});
}

/// A part with the name that follows the kind, as in "model:mlp", or a value with this name.
void add_named(engine::Registry& registry, const std::string& kind, const std::string& name) {
  if (kind == "model") add_model(registry, name);
  if (kind == "source") add_source(registry, name, points());
  if (kind == "average") add_average(registry, name, 0.5);
  if (kind == "comm_hook") add_comm_hook(registry, name, parallel::noop_hook());
  if (kind == "put") add_hook(registry, name);
  if (kind == "put_of_rank") add_hook(registry, name, true);
  if (kind == "result") add_meter(registry, meter(name));
  if (kind == "loss") add_model(registry, "mine", name);
  if (kind == "value") add_source(registry, "mine", points(name));
}

void add_no_data(engine::Registry& registry, const std::string& part) {
  if (part == "no_split") add_source(registry, "mine", {});
  if (part == "no_train") add_source(registry, "mine", {.train = nullptr, .val = std::make_shared<Points>()});
  if (part == "no_images") {
    registry.sources.push_back(
        {.name = "mine", .help = "", .keys = data::image_keys(), .open_images = [](const Section&) {
           return data::ImageSplits{};
         }});
  }
  if (part == "no_order") {
    registry.samplers.push_back({"mine", "", {}, [](const auto&, const data::SamplerRequest& request) {
                                   return data::Sampler(nullptr, request.global_batch_size, data::Remainder::drop);
                                 }});
  }
}

void add_no_training(engine::Registry& registry, const std::string& part) {
  using TrainStep = engine::TrainStep;
  if (part == "no_model") {
    registry.models.push_back({"mine", "", {}, [](const auto&, const auto&) { return nullptr; }});
  }
  if (part == "no_step") registry.steps.push_back({"mine", "", {}, [](const auto&) { return engine::LossStep(); }});
  if (part == "no_manual_step") {
    registry.steps.push_back({"mine", "", {}, [](const auto&) { return engine::ManualStep(); }});
  }
  if (part == "no_losses") {
    registry.steps.push_back({"mine", "", {}, [](const auto&) -> TrainStep {
                                return [](models::Model&, const batch::Batch&) { return engine::StepLosses{}; };
                              }});
  }
  if (part == "no_loss") {
    registry.losses.push_back({"mine", "", {}, [](const auto&, const auto&) {
                                 return models::Loss{[](const auto&, const auto&, bool) { return at::Tensor(); }};
                               }});
  }
  if (part == "no_weight") add_average(registry, "mine", std::numeric_limits<double>::quiet_NaN());
  if (part == "no_function") registry.averages.push_back({"mine", "", nullptr});
  if (part == "no_comm_hook") add_comm_hook(registry, "mine", nullptr);
  if (part == "no_completion") add_comm_hook(registry, "mine", no_completion);
  if (part == "no_tensor") add_comm_hook(registry, "mine", no_tensor);
}

void add_no_measure(engine::Registry& registry, const std::string& part) {
  if (part == "no_hook") {
    registry.hooks.push_back(
        {.name = "mine", .help = "", .keys = {}, .make = [](const auto&, const auto&) { return nullptr; }});
  }
  if (part == "no_meter") add_meter(registry, {});
  if (part == "no_results") add_meter(registry, meter("mine", 0));
  if (part == "no_curve") {
    registry.curves.push_back(
        {"mine", "", {}, [](const Section&, lockstep::schedule::Window) { return lockstep::schedule::CurveShape(); }});
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* const chosen = std::getenv("LOCKSTEP_PART");
  const std::string part = chosen == nullptr ? "" : chosen;
  engine::Registry registry;
  add_source(registry, "points", points());
  add_model(registry, "line");
  const std::size_t colon = part.find(':');
  if (colon != std::string::npos) add_named(registry, part.substr(0, colon), part.substr(colon + 1));
  for (const auto add : {add_no_data, add_no_training, add_no_measure}) add(registry, part);
  lockstep::trainer::run(argc, argv, registry);
}
