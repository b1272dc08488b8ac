// SPDX-License-Identifier: BSD-3-Clause
// A user's own program: the trainer with one more model in its table, which brings a key of its own.
#include <lockstep/engine/tables.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/types.h>

namespace {

using lockstep::Section;
using lockstep::Task;
namespace models = lockstep::models;

class Scaled : public models::Model {
 public:
  Scaled(const Section& model, const Task& task) : scale_(model.real("scale")) {
    head_ = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override { return models::run(*head_, images.flatten(1) * scale_); }

 private:
  double scale_;
  std::shared_ptr<models::Linear> head_;
};

std::shared_ptr<models::Model> make_scaled(const Section& model, const Task& task) {
  return std::make_shared<Scaled>(model, task);
}

}  // namespace

int main(int argc, char** argv) {
  lockstep::engine::Tables tables;
  tables.models.push_back({.name = "scaled",
                           .help = "one linear layer on scaled images",
                           .keys = {{.name = "model.scale",
                                     .type = lockstep::KeyType::real,
                                     .default_value = "1",
                                     .help = "factor on the images (scaled)"}},
                           .make = make_scaled});
  lockstep::trainer::run(argc, argv, tables);
}
