// SPDX-License-Identifier: BSD-3-Clause
// Whole training runs: manually, with gradients averaged whole, and by train_step, which averages them in slices where
// the ranks share the parameters.
#include <lockstep/core/error.hpp>
#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/parallel/join.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "ddp.hpp"
#include "ddp_models.hpp"
#include "optim/clip.hpp"
#include "parallel/reducers/bucket_reducer.hpp"
#include "support/optimizer.hpp"

namespace lockstep::testing::reference {
namespace {

using parallel::BufferMode;
using parallel::DdpOptions;
using parallel::DistributedDataParallel;

const mpi::Communicator& communicator() {
  static const mpi::Communicator all = mpi::Communicator::world();
  return all;
}

/// The settings that a case asks for.
struct Recipe {
  std::string model;
  at::ScalarType dtype = at::kFloat;
  OptimSettings optim;
  DdpOptions ddp;
  optim::OptimWrapper::WrapperOptions wrapper;
  int micro_steps = 0;  // number of micro steps of this rank
  bool scales_loss = true;
  bool zeroes = false;  // gradients between steps, instead of dropping them
  parallel::CommHook hook;
  Json use;  // [step][rank] of the model "branches"
};

std::string text_of(const Json& value) {
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const Json& item : value) list += (list.empty() ? "" : ",") + item.dump();
  return list;
}

OptimSettings optim_of(const Json& stored) {
  OptimSettings settings;
  for (const auto& [key, value] : stored.items()) {
    if (key != "type") settings[key] = text_of(value);
  }
  settings["name"] = stored.at("type") == "SGD" ? "sgd" : "adamw";
  return settings;
}

DdpOptions ddp_of(const Json& stored) {
  require_known_fields(stored, {"broadcast_buffers", "bucket_cap_mb", "find_unused_parameters",
                                "gradient_as_bucket_view", "static_graph"});
  DdpOptions options;
  options.reducer.finds_unused = stored.value("find_unused_parameters", false);
  options.reducer.has_static_graph = stored.value("static_graph", false);
  if (stored.contains("bucket_cap_mb")) {
    const double megabytes = stored["bucket_cap_mb"];
    options.reducer.limits = {.bucket_bytes = {static_cast<std::int64_t>(megabytes * (1 << 20))},
                              .last_bucket_bytes = 0};
  }
  // Upstream's default; Lockstep's is off.
  options.buffers = stored.value("broadcast_buffers", true) ? BufferMode::broadcast : BufferMode::off;
  return options;
}

parallel::CommHook hook_of(const std::string& name) {
  if (name == "allreduce_hook") return parallel::all_reduce_hook(world());
  if (name == "bf16_compress_hook") return parallel::bf16_hook(world());
  if (name == "fp16_compress_hook") return parallel::fp16_hook(world());
  throw std::runtime_error("no communication hook is called '" + name + "'");
}

Recipe recipe_of(const Json& one_case) {
  const Json& micro_steps = one_case.at("micro_steps");
  Recipe recipe{
      .model = one_case.at("model"),
      .dtype = dtype_of(one_case),
      .optim = optim_of(one_case.at("optimizer")),
      .ddp = ddp_of(one_case.at("ddp_options")),
      .wrapper = {},
      .micro_steps = micro_steps.is_array() ? micro_steps[static_cast<std::size_t>(world().rank())] : micro_steps,
      .scales_loss = one_case.value("scale_loss", true),
      .zeroes = !one_case.value("set_to_none", true),
      .hook = one_case.contains("hook") ? hook_of(one_case["hook"]) : parallel::CommHook(),
      .use = one_case.value("use", Json())};
  recipe.wrapper.accumulation_steps = one_case.value("accumulate", 1);
  recipe.wrapper.clip.max_norm = one_case.value("clip_norm", 0.0);
  recipe.wrapper.clip.norm_type = one_case.contains("norm_type") ? number(one_case["norm_type"]) : 2;
  recipe.wrapper.clip.max_value = one_case.value("clip_value", 0.0);
  return recipe;
}

/// The values that a run gave on this rank.
struct Outcome {
  std::vector<double> losses;                                 // losses by micro step
  std::vector<double> norms;                                  // norms by update
  std::map<std::string, at::Tensor> first_local_gradients;    // local gradients after the first micro step
  std::map<std::string, at::Tensor> first_gradients;          // gradients of the first update
  std::vector<std::vector<std::string>> undefined_gradients;  // names of parameters without gradient, by update
  std::vector<at::Tensor> running_means;                      // running means of bn1, by micro step
  std::map<std::string, at::Tensor> parameters;
  std::map<std::string, at::Tensor> buffers;
};

std::map<std::string, at::Tensor> gradients_of(const models::Model& model) {
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    gradients[item.key()] = gradient.defined() ? gradient.detach().clone() : at::Tensor();
  }
  return gradients;
}

/// One training run, micro step by micro step.
class Run {
 public:
  Run(const Recipe& recipe, bool shares)
      : recipe_(recipe),
        model_(build_model(recipe.model, recipe.dtype)),
        wrapper_(model_, communicator(), world(), with_sharing(recipe.ddp, shares)),
        optimizer_(make_optimizer(wrapper_.parameters(), recipe.optim, recipe.wrapper)) {
    if (recipe.hook) set_comm_hook(wrapper_.reducer(), recipe.hook);
  }

  Outcome by_hand() {
    train_by_hand();
    return finish();
  }

  Outcome by_train_step() {
    train_by_train_step();
    return finish();
  }

  /// Joined by hand or by train_step, while ranks may run out of inputs.
  Outcome joined(const parallel::JoinOptions& options, bool is_by_hand) {
    parallel::Join join(wrapper_, options);
    is_by_hand ? train_by_hand() : train_by_train_step();
    join.finish();
    return finish();
  }

 private:
  void train_by_hand() {
    for (int step = 0; step < recipe_.micro_steps; ++step) {
      const batch::Batch batch = begin(step);
      const bool is_last_part = (step + 1) % recipe_.wrapper.accumulation_steps == 0;
      {
        std::optional<DistributedDataParallel::NoSync> only_here;
        if (!is_last_part) only_here.emplace(wrapper_);
        const at::Tensor loss = models::total_loss(model_->losses(wrapper_.forward(batch.input()), batch.target()));
        outcome_.losses.push_back(loss.item<double>());
        (loss * share()).backward();
      }
      if (step == 0) outcome_.first_local_gradients = gradients_of(*model_);
      if (is_last_part) update();
      note_running_mean();
    }
  }

  void train_by_train_step() {
    for (int step = 0; step < recipe_.micro_steps; ++step) {
      const parallel::StepResult result = wrapper_.train_step(begin(step), optimizer_, share());
      outcome_.losses.push_back(result.loss);
      if (result.update.grad_norm) outcome_.norms.push_back(*result.update.grad_norm);
      note_running_mean();
    }
  }

  static DdpOptions with_sharing(DdpOptions options, bool shares) {
    options.shares_parameters = shares;
    return options;
  }

  double share() const {
    return recipe_.scales_loss ? 1.0 / static_cast<double>(recipe_.wrapper.accumulation_steps) : 1;
  }

  batch::Batch begin(int step) {
    const int rank = world().rank();
    if (!recipe_.use.is_null()) {
      const Json& by_rank = recipe_.use[static_cast<std::size_t>(step) % recipe_.use.size()];
      use_branches(*model_, by_rank[static_cast<std::size_t>(rank) % by_rank.size()]);
    }
    return stored_batch(recipe_.model, step, rank, recipe_.dtype);
  }

  void update() {
    if (outcome_.first_gradients.empty()) outcome_.first_gradients = gradients_of(*model_);
    std::vector<std::string>& undefined = outcome_.undefined_gradients.emplace_back();
    for (const auto& item : model_->named_parameters()) {
      if (!item.value().grad().defined()) undefined.push_back(item.key());
    }
    const optim::Clip& clip = recipe_.wrapper.clip;
    if (clip.max_norm > 0) outcome_.norms.push_back(optim::gradient_norm(wrapper_.parameters(), clip.norm_type));
    optimizer_.optimizer().step(optim::change_by(clip, clip.max_norm > 0 ? outcome_.norms.back() : 0));
    for (const at::Tensor& parameter : model_->parameters()) {
      if (!recipe_.zeroes) parameter.mutable_grad().reset();
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
    }
  }

  void note_running_mean() {
    if (recipe_.model != "conv") return;
    outcome_.running_means.push_back(model_->named_buffers()["bn1.running_mean"].clone());
  }

  Outcome finish() {
    for (const auto& item : model_->named_parameters()) outcome_.parameters[item.key()] = item.value().detach().clone();
    for (const auto& item : model_->named_buffers()) outcome_.buffers[item.key()] = item.value().clone();
    return outcome_;
  }

  Recipe recipe_;
  std::shared_ptr<models::Model> model_;
  DistributedDataParallel wrapper_;
  optim::OptimWrapper optimizer_;
  Outcome outcome_;
};

Tolerance tolerance_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? Tolerance{.absolute = 1e-13, .relative = 1e-11}
                              : Tolerance{.absolute = 2e-6, .relative = 2e-5};
}

void expect_close(const std::map<std::string, at::Tensor>& actual, const Json& expected, const Tolerance& tolerance,
                  const std::string& what) {
  EXPECT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected.items()) {
    EXPECT_EQ(actual.at(name).defined(), !tensor.is_null()) << what << name;
    if (!tensor.is_null() && actual.at(name).defined()) {
      expect_close(actual.at(name), tensor, tolerance, what + name);
    }
  }
}

void expect_equal(const Outcome& actual, const Outcome& expected) {
  for (const auto& [name, value] : expected.parameters)
    EXPECT_TRUE(at::equal(actual.parameters.at(name), value)) << name;
  for (const auto& [name, value] : expected.buffers) EXPECT_TRUE(at::equal(actual.buffers.at(name), value)) << name;
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.norms, expected.norms);
}

/// The case of this name, world size and dtype.
const Json& find_case(const std::string& name, const Json& like) {
  static const std::vector<Json> documents = {load("ddp/plain.json"), load("ddp/accumulate.json")};
  for (const Json& document : documents) {
    for (const Json& one_case : document.at("cases")) {
      if (one_case.at("name") == name && one_case.at("world_size") == like.at("world_size") &&
          one_case.at("dtype") == like.at("dtype")) {
        return one_case;
      }
    }
  }
  throw std::runtime_error("no case is called '" + name + "'");
}

/// Compares with what is stored for this rank.
void expect_as_stored(const Outcome& outcome, const Json& one_case) {
  const Tolerance tolerance = tolerance_of(dtype_of(one_case));
  const auto rank = static_cast<std::size_t>(world().rank());
  expect_close(outcome.losses, one_case.at("loss_per_rank")[rank], tolerance, "loss");
  if (one_case.contains("final_parameters")) {
    expect_close(outcome.parameters, one_case["final_parameters"], tolerance, "final ");
  }
  if (one_case.contains("grads_first_update")) {
    expect_close(outcome.first_gradients, one_case["grads_first_update"], tolerance, "gradient of ");
  }
  if (one_case.contains("grads_after_first_micro_step_per_rank")) {
    expect_close(outcome.first_local_gradients, one_case["grads_after_first_micro_step_per_rank"][rank], tolerance,
                 "local gradient of ");
  }
  if (one_case.contains("total_norm_per_update")) {
    expect_close(outcome.norms, one_case["total_norm_per_update"], tolerance, "norm");
  }
  if (one_case.contains("undefined_grads_per_update_per_rank")) {
    EXPECT_EQ(Json(outcome.undefined_gradients), one_case["undefined_grads_per_update_per_rank"][rank]);
  }
  if (one_case.contains("final_buffers_per_rank")) {
    expect_close(outcome.buffers, one_case["final_buffers_per_rank"][rank], tolerance, "final ");
  }
  if (one_case.contains("running_mean_bn1_after_each_step_per_rank")) {
    const Json& means = one_case["running_mean_bn1_after_each_step_per_rank"][rank];
    EXPECT_EQ(outcome.running_means.size(), means.size());
    for (std::size_t step = 0; step < means.size(); ++step) {
      expect_close(outcome.running_means[step], means[step], tolerance, "running mean");
    }
  }
}

void run_training(const Json& one_case) {
  require_known_fields(one_case, {"name",
                                  "world_size",
                                  "dtype",
                                  "model",
                                  "optimizer",
                                  "ddp_options",
                                  "micro_steps",
                                  "accumulate",
                                  "scale_loss",
                                  "use",
                                  "set_to_none",
                                  "clip_norm",
                                  "norm_type",
                                  "clip_value",
                                  "hook",
                                  "loss_per_rank",
                                  "grads_first_update",
                                  "grads_after_first_micro_step_per_rank",
                                  "final_parameters",
                                  "final_equals",
                                  "bitwise_equal_to_it",
                                  "final_buffers_per_rank",
                                  "running_mean_bn1_after_each_step_per_rank",
                                  "undefined_grads_per_update_per_rank",
                                  "total_norm_per_update",
                                  "torch_raises",
                                  "note"});
  if (one_case.at("world_size") != world().world_size()) return;
  const Recipe recipe = recipe_of(one_case);
  const Outcome outcome = Run(recipe, /*shares=*/false).by_hand();
  if (one_case.contains("torch_raises")) {  // a graph that is learned where steps accumulate; the other way to the same
    Recipe other = recipe;
    other.ddp.reducer = {.finds_unused = true};
    expect_equal(outcome, Run(other, /*shares=*/false).by_hand());
    EXPECT_FALSE(outcome.undefined_gradients.at(0).empty());
  } else {
    expect_as_stored(outcome, one_case);
  }
  // Lockstep sums in rank order whatever the buckets: the same bits, also where upstream has others.
  if (one_case.contains("final_equals")) {
    const Json& other = find_case(one_case["final_equals"], one_case);
    expect_equal(outcome, Run(recipe_of(other), /*shares=*/false).by_hand());
    expect_close(outcome.parameters, other.at("final_parameters"), tolerance_of(recipe.dtype), "final ");
  }
  if (recipe.zeroes) return;  // train_step drops gradients
  for (const bool shares : {false, true}) {
    SCOPED_TRACE(shares ? "by train_step, shared" : "by train_step");
    expect_equal(Run(recipe, shares).by_train_step(), outcome);
  }
}

void run_join(const Json& one_case) {
  require_known_fields(one_case, {"name", "world_size", "dtype", "model", "optimizer", "ddp_options", "micro_steps",
                                  "divide_by_initial", "loss_per_rank", "final_parameters", "final_buffers_per_rank"});
  if (one_case.at("world_size") != world().world_size()) return;
  const Recipe recipe = recipe_of(one_case);
  const parallel::JoinOptions options{.divide_by_initial = one_case.at("divide_by_initial")};
  const Outcome outcome = Run(recipe, /*shares=*/false).joined(options, /*is_by_hand=*/true);
  expect_as_stored(outcome, one_case);
  expect_equal(Run(recipe, /*shares=*/false).joined(options, /*is_by_hand=*/false), outcome);
}

/// The largest gradient that a rank brings into the first step, over all ranks.
double largest_local_gradient(const Recipe& recipe) {
  const std::shared_ptr<models::Model> model = build_model(recipe.model, recipe.dtype);
  const batch::Batch batch = stored_batch(recipe.model, 0, world().rank(), recipe.dtype);
  models::total_loss(model->losses(model->forward(batch.input()), batch.target())).backward();
  double largest = 0;
  for (const auto& [name, gradient] : gradients_of(*model)) {
    largest = std::max(largest, gradient.abs().max().item<double>());
  }
  world().all_reduce(&largest, 1, DType::float64, mpi::ReduceOp::max);
  return largest;
}

/// Gradients that travel in 16 bits. Two ranks round what upstream rounds. More ranks add in float32 and round once,
/// where upstream rounds every addition; and one rank sends nothing, so it rounds nothing.
void run_compression(const Json& one_case) {
  require_known_fields(one_case, {"name", "world_size", "dtype", "model", "optimizer", "ddp_options", "micro_steps",
                                  "hook", "loss_per_rank", "grads_first_update", "final_parameters"});
  if (one_case.at("world_size") != world().world_size()) return;
  const Recipe recipe = recipe_of(one_case);
  const Outcome outcome = Run(recipe, /*shares=*/false).by_hand();
  expect_equal(Run(recipe, /*shares=*/false).by_train_step(), outcome);
  if (world().world_size() == 2) return expect_as_stored(outcome, one_case);

  // A rounding changes a value by half a unit at most. Upstream casts, divides and adds W - 1 times; here two are left.
  const double unit = std::ldexp(largest_local_gradient(recipe), one_case["hook"] == "bf16_compress_hook" ? -8 : -11);
  const Tolerance of_gradients{.absolute = unit / 2 * (world().world_size() + 3)};
  const Tolerance of_parameters{.absolute = unit * one_case["optimizer"]["lr"].get<double>() * recipe.micro_steps};
  double slope = 0;  // derivative of the loss, as all parameters change
  for (const auto& [name, gradient] : outcome.first_gradients) slope += gradient.abs().sum().item<double>();
  expect_close(outcome.first_gradients, one_case.at("grads_first_update"), of_gradients, "gradient of ");
  expect_close(outcome.parameters, one_case.at("final_parameters"), of_parameters, "final ");
  expect_close(outcome.losses, one_case.at("loss_per_rank")[static_cast<std::size_t>(world().rank())],
               Tolerance{.absolute = of_parameters.absolute * slope}, "loss");
}

/// Trains the model "branches" manually, in ranks' branches by step, until something is refused.
/// @return  the step in which it was, or -1
int first_refusal(const parallel::ReducerOptions& options,
                  const std::function<std::vector<std::string>(int step)>& branches) {
  const std::shared_ptr<models::Model> model = build_model("branches", at::kFloat);
  DistributedDataParallel wrapper(model, communicator(), world(), {.reducer = options});
  const auto steps = static_cast<int>(stored_model("branches").at("x").size());
  for (int step = 0; step < steps; ++step) {
    use_branches(*model, branches(step));
    const batch::Batch batch = stored_batch("branches", step, world().rank(), at::kFloat);
    try {
      models::total_loss(model->losses(wrapper.forward(batch.input()), batch.target())).backward();
    } catch (const ConfigError&) {
      return step;
    }
  }
  return -1;
}

void run_errors(const Json& one_case) {
  require_known_fields(one_case, {"world_size", "unused_error_same", "unused_error_differs", "static_changed"});
  if (one_case.at("world_size") != world().world_size()) return;
  using Names = std::vector<std::string>;
  const std::map<std::string, int> refused = {
      {"unused_error_same", first_refusal({}, [](int) { return Names{"a"}; })},
      {"unused_error_differs", first_refusal({}, [](int) { return Names{world().rank() % 2 == 0 ? "a" : "b"}; })},
      {"static_changed", first_refusal({.has_static_graph = true}, [](int step) {
         return step == 0 ? Names{"a"} : Names{"a", "b"};
       })}};
  for (const auto& [name, step] : refused) {
    EXPECT_EQ(one_case.at(name).at("raised"), step >= 0) << name;
    EXPECT_EQ(one_case.at(name).at("iteration_index"), step) << name;
  }
}

}  // namespace

std::vector<Handler> training_handlers() {
  std::vector<Handler> handlers = {{.file = "compress_hooks.json", .run = run_compression},
                                   {.file = "join.json", .run = run_join},
                                   {.file = "unused_errors.json", .run = run_errors}};
  for (const char* name : {"accumulate", "buffers", "clip", "plain", "static_graph", "unused"}) {
    handlers.push_back({.file = std::string(name) + ".json", .run = run_training});
  }
  return handlers;
}

}  // namespace lockstep::testing::reference
