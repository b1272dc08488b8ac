// SPDX-License-Identifier: BSD-3-Clause
// A program of a user's own: the trainer with data, a model and a train step of its own, each with a key, and a hook.
#include <lockstep/engine/run_view.hpp>
#include <lockstep/engine/tables.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

#include <algorithm>
#include <limits>
#include <memory>

using namespace lockstep;

/// Points of the square [-1, 1]^2. Opposite quarters are of one class, so no straight line tells the classes apart.
class Corners : public data::Dataset {
 public:
  Corners(std::int64_t size, std::int64_t first) : size_(size), first_(first) {}

  std::int64_t size() const override { return size_; }
  Task task() const override { return {.sample_shape = {2}, .classes = 2}; }
  std::uint64_t digest() const override { return static_cast<std::uint64_t>(size_ * 1000003 + first_); }
  data::Batch get(std::span<const std::int64_t> indices) const override {
    const at::Tensor numbers = torch::tensor(std::vector<std::int64_t>(indices.begin(), indices.end())) + first_;
    // Multiples of irrational numbers, modulo 2, fill the square evenly.
    const at::Tensor steps = torch::tensor({1.4142135623730951, 1.7320508075688772}, at::kDouble);
    const at::Tensor points = (numbers.to(at::kDouble).unsqueeze(1) * steps).remainder(2) - 1;
    return {.input = points.to(at::kFloat), .target = (points.prod(1) > 0).to(at::kLong)};
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
  return {.train = std::make_shared<Corners>(size, 0), .test = std::make_shared<Corners>(size / 4, size)};
}

std::shared_ptr<models::Model> make_bumps(const Section& section, const Task& task) {
  return std::make_shared<Bumps>(section.integer("bumps"), task);
}

/// Trains the model's losses and a penalty on large scores.
engine::TrainStep make_calm(const Section& section) {
  return [penalty = section.real("penalty")](engine::StepContext& at) {
    parallel::DistributedDataParallel& wrapper = at.wrapper;
    optim::OptimWrapper& optimizer = at.optimizer;
    const bool completes_step = optimizer.completes_step();
    const auto frame = wrapper.micro_batch(optimizer, at.reads_gradients);
    engine::LastBatch last{.input = at.batch.input, .target = wrapper.on_device(at.batch.target)};
    last.model = &wrapper.model();
    at::Tensor loss;
    {
      const auto context = wrapper.optim_context(optimizer);
      const at::Tensor scores = wrapper.forward(last.input);
      last.output = scores.detach();
      at.notify(engine::StepEvent::forward, last);
      loss = models::total_loss(last.model->losses(scores, last.target)) + penalty * scores.square().mean();
      last.losses = {{"loss", loss.detach()}};
      at.notify(engine::StepEvent::loss, last);
    }
    parallel::StepResult result;
    result.update = optimizer.update_params(loss, at.weight, [&] {
      if (at.reads_gradients) wrapper.parameters().finish_gradients();
      at.notify(engine::StepEvent::backward, last);
    });
    if (completes_step) at.notify(engine::StepEvent::update, last);
    result.loss = loss.item<double>();
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
  engine::Tables tables;
  tables.sources.push_back({.name = "corners",
                            .help = "points of a square, told apart by their corners",
                            .keys = {{"data.corners", KeyType::integer, "512", "points to train on (corners)", 4}},
                            .open = open_corners});
  tables.models.push_back({.name = "bumps",
                           .help = "one hidden layer with tanh",
                           .keys = {{"model.bumps", KeyType::integer, "32", "width of its layer (bumps)", 1}},
                           .make = make_bumps});
  tables.steps.push_back({.name = "calm",
                          .help = "trains the losses and a penalty on large scores",
                          .keys = {{"train.penalty", KeyType::real, "0.001", "weight of the penalty (calm)", 0}},
                          .make = make_calm});
  tables.hooks.push_back({.name = "lowest_loss",
                          .help = "measures the lowest loss so far",
                          .keys = {},
                          .make = [](const auto&, const auto&) { return std::make_unique<LowestLoss>(); }});
  trainer::run(argc, argv, tables);
}
