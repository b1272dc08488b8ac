// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/models/layers.hpp>
#include <lockstep/parallel/synchronization.hpp>

#include <gtest/gtest.h>

#include <map>

#include "ddp.hpp"
#include "ddp_models.hpp"

namespace lockstep::testing::reference {
namespace {

/// A model of one layer.
class NormAlone : public models::Model {
 public:
  NormAlone(std::int64_t channels, const models::BatchNormOptions& options) {
    layer = register_module("norm", std::make_shared<models::BatchNorm>(channels, options));
  }
  at::Tensor forward(const at::Tensor& input) override { return models::run(*layer, input); }

  std::shared_ptr<models::BatchNorm> layer;
};

models::BatchNormOptions options_of(const Json& args) {
  require_known_fields(args, {"eps", "momentum", "affine"});
  models::BatchNormOptions options{.eps = args.at("eps"), .is_affine = args.value("affine", true)};
  if (args.contains("momentum")) {
    options.momentum = args["momentum"].is_null() ? std::nullopt : std::optional<double>(args["momentum"]);
  }
  return options;
}

void run_steps(const Json& one_case) {
  require_known_fields(one_case, {"name", "world_size", "rank_batch_sizes", "dtype", "module", "num_features", "args",
                                  "weight", "bias", "steps", "eval"});
  if (one_case.at("world_size") != world().world_size()) return;
  const at::ScalarType dtype = dtype_of(one_case);
  // Means near 1000 are multiples of 2^-14 in float32, and the layer's product with them rounds once more.
  const bool has_large_mean = one_case.at("name") == "bn2d_large_mean";
  const Tolerance tolerance = dtype == at::kDouble
                                  ? Tolerance{.absolute = has_large_mean ? 1e-10 : 1e-13, .relative = 1e-11}
                              : has_large_mean ? Tolerance{.absolute = 1e-2, .relative = 0}
                                               : Tolerance{.absolute = 2e-6, .relative = 2e-5};
  const models::BatchNormOptions options = options_of(one_case.at("args"));
  const auto model = std::make_shared<NormAlone>(one_case.at("num_features").get<std::int64_t>(), options);
  model->to(dtype);
  models::BatchNorm& layer = *model->layer;
  if (options.is_affine) {
    const torch::NoGradGuard no_grad;
    layer.weight.copy_(tensor_of(one_case.at("weight"), dtype));
    layer.bias.copy_(tensor_of(one_case.at("bias"), dtype));
  }
  parallel::convert_to_sync_batch_norm(*model, world());
  const int rank = world().rank();
  for (const Json& step : one_case.at("steps")) {
    const at::Tensor input = tensor_of(step.at("x")[rank], dtype).requires_grad_();
    const at::Tensor output = model->forward(input);
    expect_close(output, step.at("y")[rank], tolerance, "y");
    output.backward(tensor_of(step.at("dy")[rank], dtype));
    expect_close(input.grad(), step.at("dx")[rank], tolerance, "dx");
    expect_close(layer.running_mean, step.at("running_mean"), tolerance, "running_mean");
    expect_close(layer.running_var, step.at("running_var"), tolerance, "running_var");
    EXPECT_EQ(layer.num_batches_tracked.item<std::int64_t>(), step.at("num_batches_tracked"));
    if (!options.is_affine) continue;
    expect_close(layer.weight.grad(), step.at("dweight_local_per_rank")[rank], tolerance, "dweight");
    expect_close(layer.bias.grad(), step.at("dbias_local_per_rank")[rank], tolerance, "dbias");
    layer.weight.mutable_grad().reset();
    layer.bias.mutable_grad().reset();
  }
  model->eval();
  const Json& evaluation = one_case.at("eval");
  expect_close(model->forward(tensor_of(evaluation.at("x"), dtype)), evaluation.at("y"), tolerance, "y of evaluation");
}

/// Averages over ranks, in place.
void average(const at::Tensor& tensor) {
  world().all_reduce(tensor.mutable_data_ptr(), static_cast<std::size_t>(tensor.numel()),
                     tensor.scalar_type() == at::kDouble ? DType::float64 : DType::float32, mpi::ReduceOp::average);
}

struct Sgd {
  explicit Sgd(const Json& options)
      : lr(options.at("lr")), momentum(options.at("momentum")), weight_decay(options.at("weight_decay")) {
    require_known_fields(options, {"type", "lr", "momentum", "weight_decay"});
    if (options.at("type") != "SGD") throw std::runtime_error("unknown optimizer");
  }
  void update(const std::string& name, const at::Tensor& parameter) {
    const torch::NoGradGuard no_grad;
    const at::Tensor gradient = parameter.grad() + weight_decay * parameter;
    at::Tensor& velocity = velocities[name];
    velocity = velocity.defined() ? momentum * velocity + gradient : gradient;
    at::Tensor(parameter).sub_(lr * velocity);
  }
  double lr;
  double momentum;
  double weight_decay;
  std::map<std::string, at::Tensor> velocities;
};

void run_batch_norm_training(const Json& one_case) {
  require_known_fields(one_case, {"world_size", "dtype", "rank_batch_sizes", "optimizer", "steps",
                                  "loss_per_step_per_rank", "grads_first_step", "final_parameters", "final_buffers"});
  if (one_case.at("world_size") != world().world_size()) return;
  const Json& start = stored_model("conv");
  const at::ScalarType dtype = dtype_of(one_case);
  const Tolerance tolerance = dtype == at::kDouble ? Tolerance{.absolute = 1e-12, .relative = 1e-10}
                                                   : Tolerance{.absolute = 5e-6, .relative = 5e-5};
  const std::shared_ptr<models::Model> model = build_model("conv", dtype);
  parallel::convert_to_sync_batch_norm(*model, world());
  Sgd sgd(one_case.at("optimizer"));
  const int rank = world().rank();
  const auto samples = one_case.at("rank_batch_sizes")[rank].get<std::int64_t>();
  for (int step = 0; step < one_case.at("steps"); ++step) {
    const at::Tensor input = tensor_of(start.at("x")[step][rank], dtype).narrow(0, 0, samples);
    const at::Tensor target = tensor_of(start.at("y")[step][rank], dtype).narrow(0, 0, samples);
    const at::Tensor loss = models::cross_entropy(model->forward(input), target);
    const double expected = number(one_case.at("loss_per_step_per_rank")[step][rank]);
    EXPECT_TRUE(is_close(loss.item<double>(), expected, tolerance)) << "step " << step;
    model->zero_grad();
    loss.backward();
    for (const auto& parameter : model->named_parameters()) {
      average(parameter.value().grad());
      if (step == 0) {
        expect_close(parameter.value().grad(), one_case.at("grads_first_step").at(parameter.key()), tolerance,
                     "gradient of " + parameter.key());
      }
      sgd.update(parameter.key(), parameter.value());
    }
  }
  for (const auto& parameter : model->named_parameters()) {
    expect_close(parameter.value(), one_case.at("final_parameters").at(parameter.key()), tolerance, parameter.key());
  }
  for (const auto& buffer : model->named_buffers()) {
    expect_close(buffer.value(), one_case.at("final_buffers").at(buffer.key()), tolerance, buffer.key());
  }
}

}  // namespace

std::vector<Handler> sync_batch_norm_handlers() {
  return {{.file = "sync_batchnorm.json", .run = run_steps},
          {.file = "sync_batchnorm_training.json", .run = run_batch_norm_training}};
}

}  // namespace lockstep::testing::reference
