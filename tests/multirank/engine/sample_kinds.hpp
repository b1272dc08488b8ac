// SPDX-License-Identifier: BSD-3-Clause
// Every kind of sample, output and task: data of a few numbers, and a model for each.
#pragma once

#include <lockstep/models/layers.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include "small_run.hpp"

namespace lockstep::engine::sample_kinds {

using batch::DataContainer;
using batch::ValueList;
using batch::ValueMap;

/// A pure function of sample and place, in (-1, 1).
inline at::Tensor numbers(std::int64_t sample, at::IntArrayRef shape) {
  const std::int64_t count = c10::multiply_integers(shape);
  return at::sin(torch::arange(count, at::kDouble) * 0.7 + static_cast<double>(sample) * 1.3).view(shape);
}

/// Samples of one kind, by a function.
class KindSamples : public data::SampleDataset {
 public:
  using Make = ValueMap (*)(const batch::Draw& draw);
  KindSamples(Make make, Task task, batch::Roles roles, std::int64_t size)
      : make_(make), task_(std::move(task)), roles_(std::move(roles)), size_(size) {}
  std::int64_t size() const override { return size_; }
  Task task() const override { return task_; }
  batch::Roles roles() const override { return roles_; }
  std::uint64_t digest() const override { return 1; }
  ValueMap sample(const batch::Draw& draw) const override { return make_(draw); }

 private:
  Make make_;
  Task task_;
  batch::Roles roles_;
  std::int64_t size_;
};

/// Images of several sizes, which are padded; the model looks at sums, to which padding adds nothing.
inline ValueMap padded(const batch::Draw& draw) {
  const std::int64_t i = draw.index;
  return {{"data", DataContainer(numbers(i, {1, 2 + i % 3, 2 + i % 2}), {.stack = true})},
          {"file", DataContainer(std::to_string(i) + ".png", {.cpu_only = true})},
          {"label", i % 3}};
}

class PaddedSums : public models::Model {
 public:
  explicit PaddedSums(const Task& task) {
    head = register_module("head", std::make_shared<models::Linear>(1, task.classes));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    EXPECT_EQ(std::ssize(batch.at("file").as<ValueList>()), batch.size()) << "what is no tensor is there";
    return models::run(*head, batch.input().sum({2, 3}));
  }
  std::shared_ptr<models::Linear> head;
};

/// Two crops of different sizes; outputs, losses and what is logged are lists or maps.
inline ValueMap crops(const batch::Draw& draw) {
  return {{"crops", ValueList{numbers(draw.index, {3}), numbers(draw.index + 50, {5})}}};
}

class Crops : public models::Model {
 public:
  explicit Crops(const Task&) {
    small = register_module("small", std::make_shared<models::Linear>(3, 2));
    large = register_module("large", std::make_shared<models::Linear>(5, 2));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const std::vector<at::Tensor> crops = batch.tensors("crops");
    batch::Outputs outputs;
    outputs.add("views", std::vector<at::Tensor>{models::run(*small, crops[0]), models::run(*large, crops[1])});
    return outputs;
  }
  models::LossMap losses_of(const batch::Outputs& outputs, const batch::Batch&) const override {
    const std::vector<at::Tensor> views = outputs.list("views");
    const std::map<std::string, at::Tensor> norms = {{"first", views[0].square()}, {"second", views[1].square()}};
    return {{"loss", (views[0] - views[1]).square().mean()}, {"norms", norms}, {"loss_list", views}};
  }
  std::shared_ptr<models::Linear> small;
  std::shared_ptr<models::Linear> large;
};

/// Two inputs, two targets, two heads.
inline ValueMap pairs(const batch::Draw& draw) {
  return {{"image", numbers(draw.index, {4})},
          {"extra", numbers(draw.index + 9, {2})},
          {"class", draw.index % 3},
          {"size", numbers(draw.index + 5, {1})}};
}

class Heads : public models::Model {
 public:
  explicit Heads(const Task& task) {
    trunk = register_module("trunk", std::make_shared<models::Linear>(6, 5));
    classes = register_module("classes", std::make_shared<models::Linear>(5, task.classes));
    size = register_module("size", std::make_shared<models::Linear>(5, 1));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const at::Tensor hidden = at::tanh(models::run(*trunk, at::cat({batch.input(0), batch.input(1)}, 1)));
    return {{"class", models::run(*classes, hidden)}, {"size", models::run(*size, hidden)}};
  }
  models::LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const override {
    const std::map<std::string, at::Tensor> parts = {
        {"class", at::cross_entropy_loss(outputs.tensor("class"), batch.target(0))},
        {"size", at::mse_loss(outputs.tensor("size"), batch.target(1))}};
    return {{"loss", parts}};
  }
  std::shared_ptr<models::Linear> trunk;
  std::shared_ptr<models::Linear> classes;
  std::shared_ptr<models::Linear> size;
};

/// Some samples have no label that counts: data_valid says which.
inline ValueMap partly_valid(const batch::Draw& draw) {
  return {{"data", numbers(draw.index, {4})},
          {"label", draw.index % 3},
          {"data_valid", std::int64_t{draw.index % 5 < 2 ? 1 : 0}}};
}

class Validated : public models::Model {
 public:
  explicit Validated(const Task& task) {
    head = register_module("head", std::make_shared<models::Linear>(4, task.classes));
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*head, input); }
  models::LossMap losses_of(const batch::Outputs& outputs, const batch::Batch& batch) const override {
    const at::Tensor target = at::where(batch.tensor("data_valid").gt(0), batch.target(), data::kIgnored);
    return {{"loss", at::cross_entropy_loss(outputs.main(), target, {}, at::Reduction::Mean, data::kIgnored)}};
  }
  std::vector<std::pair<std::string, double>> counts(const batch::Batch& batch) const override {
    return {{"loss", batch.tensor("data_valid").sum().item<double>()}};
  }
  std::shared_ptr<models::Linear> head;
};

inline ValueMap labeled(const batch::Draw& draw) {
  return {{"data", numbers(draw.index, {4})}, {"label", numbers(draw.index + 3, {3}).gt(0).to(at::kLong)}};
}
inline ValueMap measured(const batch::Draw& draw) {
  return {{"data", numbers(draw.index, {4})}, {"label", numbers(draw.index + 3, {3})}};
}
class Line : public models::Model {
 public:
  explicit Line(const Task& task) { head = register_module("head", std::make_shared<models::Linear>(4, task.classes)); }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*head, input); }
  std::shared_ptr<models::Linear> head;
};

inline ValueMap segmented(const batch::Draw& draw) {
  const at::Tensor image = numbers(draw.index, {1, 4, 4});
  return {{"data", image}, {"label", image[0].gt(0).to(at::kLong)}};
}
class Pixels : public models::Model {
 public:
  explicit Pixels(const Task& task) {
    conv = register_module("conv", std::make_shared<models::Conv2d>(1, task.classes, 3));
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*conv, input); }
  std::shared_ptr<models::Conv2d> conv;
};

/// A row that is filled up to four numbers, and which of them are given.
inline ValueMap masked(const batch::Draw& draw) {
  const at::Tensor is_given = torch::arange(4).le(draw.index % 4).to(at::kDouble);
  return {{"data", numbers(draw.index, {4}) * is_given}, {"given", is_given}, {"label", draw.index % 3}};
}

/// Halves a row; keeps the whole one for the way back.
class Down : public models::Block {
 public:
  Down() { half = register_module("half", std::make_shared<models::Linear>(4, 2)); }
  models::Tensors forward_tensors(const models::Tensors& inputs) override {
    const at::Tensor kept = at::tanh(inputs.at(0));
    return {models::run(*half, kept), kept};
  }
  std::shared_ptr<models::Linear> half;
};

/// Widens a row, adds what was kept where the mask says so.
class Up : public models::Block {
 public:
  Up() { wide = register_module("wide", std::make_shared<models::Linear>(2, 4)); }
  models::Tensors forward_tensors(const models::Tensors& inputs) override {
    const at::Tensor& mask = inputs.at(2);
    return {models::run(*wide, inputs.at(0)) + (mask.defined() ? inputs.at(1) * mask : inputs.at(1))};
  }
  std::shared_ptr<models::Linear> wide;
};

/// Blocks of several tensors: what skips a block, and a mask.
class Skips : public models::Model {
 public:
  explicit Skips(const Task& task) {
    down = register_module("down", std::make_shared<Down>());
    up = register_module("up", std::make_shared<Up>());
    head = register_module("head", std::make_shared<models::Linear>(4, task.classes));
  }
  batch::Outputs forward_batch(const batch::Batch& batch) override {
    const models::Tensors below = models::run(*down, models::Tensors{batch.input()});
    return models::run(*head, models::run(*up, {below[0], below[1], batch.tensor("given")}).front());
  }
  std::shared_ptr<Down> down;
  std::shared_ptr<Up> up;
  std::shared_ptr<models::Linear> head;
};

struct SampleKind {
  const char* name;
  KindSamples::Make sample;
  Task task;
  batch::Roles roles;
  std::shared_ptr<models::Model> (*make)(const Section& model, const Task& task);
  std::vector<std::string> measured;  // values that evaluations measure beside the loss
  Settings settings = {};
};

template <class M>
std::shared_ptr<models::Model> made(const Section&, const Task& task) {
  return std::make_shared<M>(task);
}

inline const batch::Roles kUsual;

inline const std::vector<SampleKind>& kinds() {
  static const std::vector<SampleKind> rows = {
      {"padded", padded, {.classes = 3}, kUsual, made<PaddedSums>, {"accuracy"}},
      {"crops", crops, {.kind = TaskKind::custom}, {.inputs = {"crops"}, .targets = {}}, made<Crops>, {"norms/first"}},
      {"heads",
       pairs,
       {.classes = 3, .kind = TaskKind::custom},
       {.inputs = {"image", "extra"}, .targets = {"class", "size"}},
       made<Heads>,
       {"top_2_accuracy", "size/rmse"},
       {{"eval.metrics", "top_k,k=2,output=class,target=class"},
        {"eval.metrics", "regression,output=size,target=size,classes=1,prefix=size"}}},
      {"valid", partly_valid, {.classes = 3}, kUsual, made<Validated>, {"accuracy"}},
      {"multilabel", labeled, {.classes = 3, .kind = TaskKind::multilabel}, kUsual, made<Line>, {"label_f1"}},
      {"regression", measured, {.classes = 3, .kind = TaskKind::regression}, kUsual, made<Line>, {"rmse"}},
      {"segmentation", segmented, {.classes = 2, .kind = TaskKind::segmentation}, kUsual, made<Pixels>, {"miou"}},
      {"skips", masked, {.classes = 3}, kUsual, made<Skips>, {"accuracy"}},
  };
  return rows;
}

inline Registry tables_of(const SampleKind& kind) {
  Registry registry;
  registry.sources.push_back({.name = "kind", .help = "", .keys = {}, .open = [&kind](const Section&) {
                                const auto part = [&kind](std::int64_t size) {
                                  return std::make_shared<KindSamples>(kind.sample, kind.task, kind.roles, size);
                                };
                                return data::Splits{.train = part(60), .val = part(13)};
                              }});
  registry.models.push_back({.name = "kind", .help = "", .keys = {}, .make = kind.make});
  return registry;
}

/// A run of four steps of a kind.
inline Settings settings_of(const SampleKind& kind, const Settings& more) {
  return with(with({{"data.name", "kind"},
                    {"model.name", "kind"},
                    {"train.precision", "fp64"},
                    {"train.global_batch_size", "12"},
                    {"train.max_steps", "4"},
                    {"optim.name", "adamw"},
                    {"optim.lr", "0.05"}},
                   kind.settings),
              more);
}

}  // namespace lockstep::engine::sample_kinds
