// SPDX-License-Identifier: BSD-3-Clause
// Gradients and parameters on their way between ranks, and between a GPU and the host: each wait has a case that fails
// without it.
#include <lockstep/parallel/synchronization.hpp>

#include "multirank/parallel/parallel_test.hpp"
#include "ordered_work.hpp"
#include "parallel/comm_hooks/power_sgd.hpp"
#include "parallel/store/parameter_store.hpp"
#include "parallel/store/shards.hpp"

namespace lockstep::parallel {
namespace reduction_order_test {

using fake_gpu::access_on_host;

const std::vector<std::int64_t> kWidths = {100, 100, 100, 4};
/// Each layer has a bucket, and a unit of shards, of its own.
constexpr BucketLimits small_buckets() { return {.bucket_bytes = {60000}, .last_bucket_bytes = 0}; }

void access(const optim::GradientPiece& piece) {
  access_on_host(piece.values, static_cast<std::size_t>(piece.count) * sizeof(double), false);
}

class ReductionOrderTest : public fake_gpu::OrderTest {
 protected:
  void SetUp() override {
    OrderTest::SetUp();
    if (!IsSkipped()) on_gpu_ = mpi::make_collectives(world_, {.backend = "nccl", .gpu = device_->gpu()});
    on_cpu_ = mpi::make_collectives(world_, {});
  }

  mpi::Collectives& collectives(bool is_on_gpu) const { return is_on_gpu ? *on_gpu_ : *on_cpu_; }

  std::shared_ptr<Layers> make_model(bool is_on_gpu = true) const {
    const auto model = std::make_shared<Layers>(kWidths);
    if (is_on_gpu) model->to(device());
    return model;
  }

  std::unique_ptr<DistributedDataParallel> wrap(DdpOptions options, bool is_on_gpu = true) const {
    options.reducer.limits = small_buckets();
    options.hosts = world_.size();
    return std::make_unique<DistributedDataParallel>(make_model(is_on_gpu), world_, collectives(is_on_gpu), options);
  }

  /// Leaves averaged gradients.
  void backward(DistributedDataParallel& wrapper, int step = 0) const {
    const batch::Batch batch = wrapper.prepare(batch_of(world_.rank(), step, kWidths), /*is_training=*/true);
    const at::Tensor output = wrapper.forward(batch.input());
    models::total_loss(wrapper.model().losses(output, batch.target())).backward();
    wrapper.store().finish_gradients();
  }

  static std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
    return copies;
  }

  std::vector<at::Tensor> trained(const Sharding& sharding) const {
    const auto wrapper = wrap({.sharding = sharding});
    optim::OptimWrapper optimizer = make_optimizer(wrapper->store(), {{"name", "adamw"}, {"lr", "0.01"}});
    for (int step = 0; step < 4; ++step) wrapper->train_step(batch_of(world_.rank(), step, kWidths), optimizer);
    std::vector<at::Tensor> parameters;
    wrapper->store().read_whole([&] { parameters = copies_of(wrapper->model().parameters()); });
    return parameters;
  }

  std::unique_ptr<mpi::Collectives> on_gpu_;
  std::unique_ptr<mpi::Collectives> on_cpu_;
};

TEST_F(ReductionOrderTest, HooksLeaveTheGradientsOfTheCpu) {
  const std::vector<std::function<ChosenHook(mpi::Collectives&)>> hooks = {
      [](mpi::Collectives& all) { return ChosenHook{.hook = all_reduce_hook(all)}; },
      [](mpi::Collectives& all) { return ChosenHook{.hook = fp16_hook(all)}; },
      [](mpi::Collectives& all) { return power_sgd_hook(all, {.rank = 2, .start_step = 2}); }};
  for (const auto& hook : hooks) {
    std::vector<std::vector<at::Tensor>> gradients;
    for (const bool is_on_gpu : {true, false}) {
      const auto wrapper = wrap({.comm_hook = hook}, is_on_gpu);
      for (int step = 0; step < 4; ++step) {
        drop_gradients(wrapper->model());
        backward(*wrapper, step);
      }
      gradients.push_back(copies_of(gradients_of(wrapper->model())));
    }
    expect_equal(gradients[0], gradients[1], 0.01);
  }
}

// A reducer waits for an operation behind them, too.
TEST_F(ReductionOrderTest, HooksWaitForTheirOwnOperations) {
  const ChosenHook whole = {.hook = all_reduce_hook(*on_gpu_)};
  const ChosenHook compressed =
      power_sgd_hook(*on_gpu_, {.rank = 1, .start_step = 0, .has_error_feedback = false, .has_warm_start = false});
  for (const ChosenHook& chosen : {whole, compressed}) {
    const at::Tensor buffer = on_device(world_.rank() + 1);
    const std::vector<at::Tensor> gradients = {buffer.view({64, 64})};
    const Completion complete = chosen.hook(
        {.index = 0, .count = 1, .buffer = buffer, .gradients = gradients, .parameters = gradients, .places = {0}});
    const at::Tensor average = complete().add_(1);
    EXPECT_NEAR(average.min().item<double>(), (world_.size() + 3) / 2.0, 1e-9);
    EXPECT_NEAR(average.max().item<double>(), (world_.size() + 3) / 2.0, 1e-9);
  }
}

TEST_F(ReductionOrderTest, GradientsThatAreAveragedOnRequest) {
  if (world_.size() == 1) GTEST_SKIP() << "one rank averages nothing";
  const auto model = make_model();
  for (const at::Tensor& parameter : model->parameters()) {
    parameter.mutable_grad() = at::full_like(parameter, world_.rank() + 1);
  }
  ManualReducer(*model, *on_gpu_, small_buckets()).all_reduce();
  for (const at::Tensor& parameter : model->parameters()) expect_all(parameter.grad(), (world_.size() + 1) / 2.0);
}

TEST_F(ReductionOrderTest, ShardsTrainLikeReplicas) {
  const std::vector<at::Tensor> expected = trained({});
  for (const Sharding& sharding :
       std::vector<Sharding>{{.stage = 3, .blocks = {"l0", "l1"}},
                             {.stage = 3, .blocks = {"l0", "l1"}, .prefetches = false},
                             {.stage = 3, .blocks = {"l0", "l1"}, .offloads = true},
                             {.stage = 2, .is_within_hosts = true},
                             {.stage = 1, .offloads = true, .owns_whole_parameters = true}}) {
    SCOPED_TRACE(sharding.stage);
    expect_equal(trained(sharding), expected, 1e-9);
  }
}

// The optimizer reads the gradients and writes the parameters in the memory of the host.
TEST_F(ReductionOrderTest, TheHostFindsWhatTheDeviceSendsAndLeavesWhatItReads) {
  for (const int stage : {1, 2}) {
    const auto wrapper = wrap({.sharding = {.stage = stage, .offloads = true}});
    ParameterStore& store = wrapper->store();
    backward(*wrapper);
    store.visit_gradients(access, /*is_last=*/true);
    const auto write = [&store] {
      for (const optim::FlatBlock& block : store.blocks()) {
        access_on_host(block.parameters, static_cast<std::size_t>(block.count) * sizeof(double), true);
      }
    };
    store.write(write);
    store.write(write);
    store.write_alone([] {});
    EXPECT_TRUE(std::isfinite(wrapper->model().parameters()[0].sum().item<double>()));
  }
}

// Gradients that were sent to the host, and that nobody has read, are replaced.
TEST_F(ReductionOrderTest, GradientsAreReplacedOnceTheyWereSent) {
  const auto in_slices = wrap({.sharding = {.stage = 2, .offloads = true}});
  for (const bool is_read : {true, false, false}) {
    backward(*in_slices);
    if (is_read) in_slices->store().visit_gradients(access, /*is_last=*/true);
    in_slices->store().drop_gradients();
  }
  const auto whole = wrap({.sharding = {.stage = 1, .offloads = true}});
  for (int step = 0; step < 4; ++step) {  // the host waits for the device in the second one, which builds new buckets
    backward(*whole, step);
    try {
      whole->store().visit_gradients([](const auto&) { throw std::runtime_error("not finite"); }, /*is_last=*/true);
    } catch (const std::runtime_error&) {  // thrown on ranks that own a part
    }
    whole->store().drop_gradients();
  }
}

TEST_F(ReductionOrderTest, SlicesAreTakenAfterTheyWereBroughtBack) {
  const auto model = make_model();
  std::vector<NamedParameter> parameters = trained_parameters(*model);
  const std::vector<Unit> units = plan_units(specs_of(parameters), {{0, 1}, {2, 3, 4, 5}}, world_.size());
  const std::vector<at::Tensor> before = copies_of(model->parameters());
  Shards shards(parameters, units, *on_gpu_, {.frees = true, .prefetches = false, .offloads = true});
  for (std::size_t u = 0; u < units.size(); ++u) shards.gather(u);
  shards.bring_back();
  shards.take_slices();
  expect_equal(copies_of(model->parameters()), before);
}

}  // namespace reduction_order_test
}  // namespace lockstep::parallel
