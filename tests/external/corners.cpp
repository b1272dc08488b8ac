// SPDX-License-Identifier: BSD-3-Clause
// A program of a user's own: the trainer with data, models and train steps of its own, each with a key, and a hook.
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "table.hpp"

using namespace lockstep;

/// Points of the square [-1, 1]^2. Opposite quarters are of one class, so no straight line tells the classes apart.
class Corners : public data::Dataset {
 public:
  Corners(std::int64_t size, std::int64_t first) : size_(size), first_(first) {}

  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = {2}, .classes = 2}; }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(size_ * 1000003 + first_); }
  batch::Batch get(std::span<const batch::Draw> draws) const override {
    std::vector<std::int64_t> numbers;
    for (const batch::Draw& draw : draws) numbers.push_back(draw.index + first_);
    // Multiples of irrational numbers, modulo 2, fill the square evenly.
    const at::Tensor steps = torch::tensor({1.4142135623730951, 1.7320508075688772}, at::kDouble);
    const at::Tensor points = (torch::tensor(numbers).to(at::kDouble).unsqueeze(1) * steps).remainder(2) - 1;
    return {points.to(at::kFloat), (points.prod(1) > 0).to(at::kLong)};
  }

 private:
  std::int64_t size_;
  std::int64_t first_;
};

class Bumps : public models::Model {
 public:
  Bumps(std::int64_t width, const Task& task) {
    in_ = register_module("in", std::make_shared<models::Linear>(task.sample_shape[0], width));
    out_ = register_module("out", std::make_shared<models::Linear>(width, task.classes));
  }
  at::Tensor forward(const at::Tensor& points) override {
    return models::run(*out_, at::tanh(models::run(*in_, 4 * points)));
  }

 private:
  std::shared_ptr<models::Linear> in_;
  std::shared_ptr<models::Linear> out_;
};

data::Splits open_corners(const Section& section) {
  const std::int64_t size = section.integer("corners");
  return {.train = std::make_shared<Corners>(size, 0), .val = std::make_shared<Corners>(size / 4, size)};
}

std::shared_ptr<models::Model> make_bumps(const Section& section, const Task& task) {
  return std::make_shared<Bumps>(section.integer("bumps"), task);
}

/// Points with what surrounds them: two inputs and two targets by name, one sample at a time.
class Places : public data::SampleDataset {
 public:
  explicit Places(std::int64_t size) : size_(size) {}

  std::int64_t size() const override { return size_; }
  Task task() const override { return {.classes = 2, .kind = TaskKind::custom}; }
  batch::Roles roles() const override { return {.inputs = {"point", "neighbors"}, .targets = {"corner", "distance"}}; }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(size_); }
  batch::ValueMap sample(const batch::Draw& draw) const override {
    const auto number = static_cast<double>(draw.index);
    const at::Tensor point =
        (torch::tensor({1.4142135623730951 * number, 1.7320508075688772 * number})).remainder(2) - 1;
    return {{"point", point},
            // The neighbors, as many as there are; the others of a batch are padded with zeros.
            {"neighbors", batch::DataContainer(at::ones({1, 1 + draw.index % 3}), {.stack = true, .pad_dims = 1})},
            {"corner", point.prod().item<double>() > 0 ? 1 : 0},
            {"distance", point.norm().view({1})},
            {"name", "place " + std::to_string(draw.index)}};
  }

 private:
  std::int64_t size_;
};

/// Two inputs, two heads and losses of its own.
class TwoHeads : public models::Model {
 public:
  explicit TwoHeads(std::int64_t width) {
    trunk_ = register_module("trunk", std::make_shared<models::Linear>(3, width));
    corner_ = register_module("corner", std::make_shared<models::Linear>(width, 2));
    distance_ = register_module("distance", std::make_shared<models::Linear>(width, 1));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const at::Tensor count = batch.tensor("neighbors").sum({1, 2}).unsqueeze(1);
    const at::Tensor hidden = at::tanh(models::run(*trunk_, at::cat({4 * batch.tensor("point"), count}, 1)));
    return {{"corner", models::run(*corner_, hidden)}, {"distance", models::run(*distance_, hidden)}};
  }
  models::LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const override {
    return {{"loss_corner", models::cross_entropy(outputs.tensor("corner"), batch.tensor("corner"))},
            {"loss_distance", at::mse_loss(outputs.tensor("distance"), batch.tensor("distance").to(at::kFloat))}};
  }
  models::Predictions predictions_of(const batch::Outputs& outputs, const batch::Batch&) const override {
    return {{"corner", outputs.tensor("corner").argmax(1)}, {"distance", outputs.tensor("distance").squeeze(1)}};
  }

 private:
  std::shared_ptr<models::Linear> trunk_;
  std::shared_ptr<models::Linear> corner_;
  std::shared_ptr<models::Linear> distance_;
};

data::Splits open_places(const Section& section) {
  const std::int64_t size = section.integer("places");
  return {.train = std::make_shared<Places>(size), .test = std::make_shared<Places>(size / 4)};
}

std::shared_ptr<models::Model> make_two_heads(const Section& section, const Task&) {
  return std::make_shared<TwoHeads>(section.integer("bumps"));
}

/// Trains the model's losses and a penalty on large scores.
engine::LossStep make_calm(const Section& section) {
  return [penalty = section.real("penalty")](models::Model& model, const batch::Batch& batch) {
    engine::StepLosses step{.losses = {}, .outputs = models::run(model, batch)};
    step.losses = models::losses_of(model, step.outputs, batch);
    step.losses.emplace_back("loss_penalty", penalty * step.outputs.main().square().mean());
    return step;
  };
}

/// The same in the explicit form, with two backwards: that of the penalty accumulates, that of the losses synchronizes.
engine::ManualStep make_calm_twice(const Section& section) {
  return [penalty = section.real("penalty")](engine::StepContext& step_context) {
    parallel::DistributedDataParallel& wrapper = step_context.wrapper;
    const bool completes_step = step_context.optimizer.completes_step();
    const auto frame = wrapper.micro_batch(step_context.optimizer, step_context.reads_gradients);
    const batch::Batch batch = wrapper.prepare(step_context.batch, /*is_training=*/true);
    engine::LastBatch last{.given = &step_context.batch, .batch = &batch, .model = &wrapper.model()};
    {
      const auto only_accumulates = wrapper.no_sync();
      const at::Tensor scores = wrapper.forward(batch).main();
      (penalty * step_context.weights.of_total() * scores.square().mean()).backward();
    }
    models::ParsedLosses losses;
    {
      const auto context = wrapper.optim_context(step_context.optimizer);
      const batch::Outputs outputs = wrapper.forward(batch);
      last.outputs = outputs.detached();
      step_context.notify(engine::StepEvent::forward, last);
      losses = models::parse_losses(models::losses_of(wrapper.model(), outputs, batch));
      last.losses = losses.values;
      step_context.notify(engine::StepEvent::loss, last);
    }
    parallel::StepResult result;
    result.update = step_context.optimizer.update_params(losses.total, step_context.weights.of_total(), [&] {
      if (step_context.reads_gradients) wrapper.parameters().finish_gradients();
      step_context.notify(engine::StepEvent::backward, last);
    });
    if (completes_step) step_context.notify(engine::StepEvent::update, last);
    result.read(losses, step_context.weights);
    return result;
  };
}

/// Puts the lowest loss so far beside the loss, in the log's lines of metrics.jsonl.
class LowestLoss : public engine::Hook {
 public:
  void after_step(engine::RunView& run, const engine::StepReport& step) override {
    lowest_ = std::min(lowest_, step.loss);
    run.events.put("lowest_loss", lowest_, {.is_smoothed = false});
  }

 private:
  double lowest_ = std::numeric_limits<double>::infinity();
};

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.sources.push_back({.name = "corners",
                              .help = "points of a square, told apart by their corners",
                              .keys = {{"data.corners", KeyType::integer, "512", "points to train on (corners)", 4}},
                              .open = open_corners});
  registry.sources.push_back({.name = "places",
                              .help = "points with two inputs and two targets",
                              .keys = {{"data.places", KeyType::integer, "512", "points to train on (places)", 4}},
                              .open = open_places});
  registry.sources.push_back({.name = "table",
                              .help = "numbers of a text file with commas, one column of which is predicted",
                              .keys = {{"data.table", KeyType::text, "", "path of the file (table)"},
                                       {"data.column", KeyType::text, "", "name of the column to predict (table)"}},
                              .open = tables::open_table});
  registry.models.push_back(
      {.name = "two_heads", .help = "a hidden layer with tanh under two heads", .keys = {}, .make = make_two_heads});
  registry.models.push_back({.name = "bumps",
                             .help = "one hidden layer with tanh",
                             .keys = {{"model.bumps", KeyType::integer, "32", "width of its layer (bumps)", 1}},
                             .make = make_bumps});
  registry.steps.push_back({.name = "calm",
                            .help = "trains the losses and a penalty on large scores",
                            .keys = {{"train.penalty", KeyType::real, "0.001", "weight of the penalty (calm)", 0}},
                            .make = make_calm});
  registry.steps.push_back({.name = "calm_twice",
                            .help = "the same with two backwards",
                            .keys = {{"train.penalty", KeyType::real, "0.001", "weight of the penalty (calm)", 0}},
                            .make = make_calm_twice});
  registry.hooks.push_back({.name = "lowest_loss",
                            .help = "measures the lowest loss so far",
                            .keys = {},
                            .make = [](const auto&, const auto&) { return std::make_unique<LowestLoss>(); }});
  trainer::run(argc, argv, registry);
}
