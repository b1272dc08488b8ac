// SPDX-License-Identifier: BSD-3-Clause
// The trainer with a part of each kind that fails on the last rank in the fifth step, as LOCKSTEP_FAILS says: forward,
// loss, backward, hook or metric; or with data of which sample 7 is wrong: sample, key, structure or batch. When it
// fails it makes the file that LOCKSTEP_STAMP names. With `file` it hangs instead: it reads its samples from the pipe
// of that name, into which nobody writes. With `slow` its metric takes long; with `stop` or `kill` its metric or its
// hook stops or kills the process; with `stop_in_save` its hook stops it before a checkpoint.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/hook.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/models/layers.hpp>
#include <lockstep/trainer/trainer.hpp>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using lockstep::Section;
using lockstep::Task;
namespace data = lockstep::data;
namespace engine = lockstep::engine;
namespace metrics = lockstep::metrics;
namespace models = lockstep::models;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_last_rank() {
  const int last = std::atoi(variable("OMPI_COMM_WORLD_SIZE").c_str()) - 1;
  return std::atoi(variable("OMPI_COMM_WORLD_RANK").c_str()) == last;
}

/// Calls of one place on the rank that is to fail; the fifth one fails.
void pass(const std::string& place) {
  static int calls = 0;
  if (variable("LOCKSTEP_FAILS") == "slow" && place == "metric" && is_last_rank()) {
    std::this_thread::sleep_for(std::chrono::seconds(++calls == 5 ? 6 : 0));
  }
  const bool is_place = place == "metric" || place == "hook";
  if (variable("LOCKSTEP_FAILS") == "stop" && is_place && is_last_rank()) std::raise(SIGSTOP);
  if (variable("LOCKSTEP_FAILS") == "kill" && is_place && is_last_rank()) std::raise(SIGKILL);
  if (variable("LOCKSTEP_FAILS") != place || !is_last_rank()) return;
  if (++calls != 5) return;
  std::ofstream(variable("LOCKSTEP_STAMP")).flush();
  TORCH_CHECK(place != "hook", "the ", place, " of this test fails");  // fails as LibTorch does
  throw std::runtime_error("the " + place + " of this test fails");
}

/// Whether this is the sample that is wrong in the way of LOCKSTEP_FAILS.
bool is_wrong(const lockstep::batch::Draw& draw, const std::string& way) {
  if (draw.index != 7 || variable("LOCKSTEP_FAILS") != way) return false;
  std::ofstream(variable("LOCKSTEP_STAMP")).flush();
  return true;
}

Task task() { return {.sample_shape = {28 * 28}, .classes = 2}; }

class Samples : public data::SampleDataset, public data::SampleFiles {
 public:
  void read_ahead(const lockstep::batch::Draw&) const override {}
  std::string place(const lockstep::batch::Draw&) const override { return variable("LOCKSTEP_STAMP"); }
  std::int64_t size() const override { return 480; }
  Task task() const override { return ::task(); }
  std::uint64_t digest() const override { return 1; }
  lockstep::batch::ValueMap sample(const lockstep::batch::Draw& draw) const override {
    if (variable("LOCKSTEP_FAILS") == "file" && is_last_rank() && draw.epoch > 0) {
      std::ifstream(variable("LOCKSTEP_STAMP")).get();
    }
    if (is_wrong(draw, "sample")) throw std::out_of_range("the sample of this test fails");
    lockstep::batch::ValueMap values = {{"data", torch::full({28 * 28}, 0.001 * double(draw.index))}};
    if (is_wrong(draw, "structure")) values["data"] = torch::ones({9});
    if (!is_wrong(draw, "key")) values["label"] = draw.index % 2;
    return values;
  }
};

/// Gives whole batches, one of them without a sample.
class Batches : public data::Dataset {
 public:
  std::int64_t size() const override { return 480; }
  Task task() const override { return ::task(); }
  std::uint64_t digest() const override { return 1; }
  lockstep::batch::Batch get(std::span<const lockstep::batch::Draw> draws) const override {
    const bool is_empty = std::any_of(draws.begin(), draws.end(), [](const auto& d) { return is_wrong(d, "batch"); });
    const std::int64_t count = is_empty ? 0 : std::ssize(draws);
    return lockstep::batch::Batch(torch::ones({count, 28 * 28}), torch::zeros({count}, at::kLong));
  }
};

struct Passing : torch::autograd::Function<Passing> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& input) { return input.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    pass("backward");
    return gradients;
  }
};

class Failing : public models::Model {
 public:
  explicit Failing(const Task& task) {
    head_ = register_module("head", std::make_shared<models::Linear>(28 * 28, task.classes));
  }
  at::Tensor forward(const at::Tensor& images) override {
    pass("forward");
    return Passing::apply(models::run(*head_, images.flatten(1)));
  }
  models::LossMap losses(const at::Tensor& output, const at::Tensor& target) const override {
    pass("loss");
    return Model::losses(output, target);
  }

 private:
  std::shared_ptr<models::Linear> head_;
};

class FailingHook : public engine::Hook {
 public:
  void after_step(engine::RunView&, const engine::StepReport&) override { pass("hook"); }
  void before_save(engine::RunView&) override {
    if (variable("LOCKSTEP_FAILS") == "stop_in_save" && is_last_rank()) std::raise(SIGSTOP);
  }
};

metrics::Meter failing_meter(const Section&, std::int64_t) {
  return {.results = {{"failing", true}},
          .words = 1,
          .add = [](const metrics::Samples&, std::span<std::int64_t>) { pass("metric"); },
          .read = [](std::span<const std::int64_t>) { return metrics::Reading{.numbers = {0.0}}; }};
}

}  // namespace

int main(int argc, char** argv) {
  engine::Registry registry;
  registry.sources.push_back({.name = "samples", .help = "", .keys = {}, .open = [](const Section&) {
                                return data::Splits{.train = std::make_shared<Samples>()};
                              }});
  registry.sources.push_back({.name = "batches", .help = "", .keys = {}, .open = [](const Section&) {
                                return data::Splits{.train = std::make_shared<Batches>()};
                              }});
  registry.models.push_back({.name = "failing", .help = "", .keys = {}, .make = [](const Section&, const Task& task) {
                               return std::shared_ptr<models::Model>(std::make_shared<Failing>(task));
                             }});
  registry.hooks.push_back({.name = "failing",
                            .help = "",
                            .keys = {},
                            .priority = engine::Priority::normal,
                            .make = [](const auto&, const auto&) { return std::make_unique<FailingHook>(); }});
  registry.meters.push_back({.name = "failing", .help = "", .needs = "", .keys = {}, .make = failing_meter});
  lockstep::trainer::run(argc, argv, registry);
}
