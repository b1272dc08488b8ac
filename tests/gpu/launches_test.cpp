// SPDX-License-Identifier: BSD-3-Clause
// Launches of updates, and collectives for what ranks keep equal: their numbers do not grow with the number of tensors.
#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <cmath>
#include <cstdio>
#include <functional>

#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "multirank/parallel/parallel_test.hpp"
#include "optim/update/tensor_parameters.hpp"
#include "parallel/comm_hooks/post_local_sgd.hpp"
#include "parallel/ddp/model_buffers.hpp"
#include "parallel/store/parameter_store.hpp"

namespace lockstep::parallel {
namespace launches_test {

using fake_gpu::cost_of;
using fake_gpu::Counters;
using testing::OptimSettings;

constexpr std::int64_t kWidth = 16;
constexpr int kSteps = 4;

std::vector<std::int64_t> widths_of(int layers) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(layers) + 1, kWidth);
}

std::vector<at::Tensor> on_host(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().cpu().clone());
  return copies;
}

/// An update and what it may cost.
struct Update {
  OptimSettings optim;
  std::int64_t launches = 0;  ///< the most that the update may need; 0 = it is only compared
  double tolerance = 1e-10;   ///< difference of parameters from the CPU's
};

std::string text_of(const Update& update) {
  std::string text;
  for (const auto& [key, value] : update.optim) text += key + "=" + value + " ";
  return text;
}

/// Rules with the options that cost most.
const std::vector<Update>& updates() {
  constexpr std::int64_t kElements = 16;
  static const std::vector<Update> all = {
      {{{"name", "sgd"}, {"lr", "0.05"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}, {"nesterov", "true"}}, 1},
      {{{"name", "sgd"}, {"lr", "0.05"}, {"momentum", "0.9"}, {"dampening", "0.5"}, {"maximize", "true"}}, 1},
      {{{"name", "adam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"amsgrad", "true"}}, 1},
      {{{"name", "adamw"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}}, 1},
      {{{"name", "adagrad"}, {"lr", "0.1"}, {"lr_decay", "0.1"}, {"weight_decay", "0.1"}}, 1},
      {{{"name", "adagrad"}, {"lr", "0.1"}, {"initial_accumulator_value", "0.5"}, {"maximize", "true"}}, 1},
      {{{"name", "adadelta"}, {"lr", "1"}, {"weight_decay", "0.1"}, {"maximize", "true"}}, kElements},
      {{{"name", "adamax"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}}, kElements},
      {{{"name", "asgd"}, {"lr", "0.1"}, {"lambd", "0.1"}, {"t0", "2"}, {"weight_decay", "0.1"}}, kElements},
      {{{"name", "lion"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}}, kElements},
      {{{"name", "nadam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"maximize", "true"}}, kElements},
      {{{"name", "radam"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"betas", "0.9, 0.5"}}, kElements},
      {{{"name", "rmsprop"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"centered", "true"}, {"momentum", "0.9"}},
       kElements},
      {{{"name", "rprop"}, {"lr", "0.01"}}, kElements},
      {{{"name", "lion"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"caution", "true"}}, kElements},
      {{{"name", "lars"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}, {"trust_clip", "true"}},
       kElements},
      {{{"name", "lars"}, {"lr", "0.1"}, {"weight_decay", "0.1"}, {"joint_norm", "true"}, {"adapt_vectors", "false"}},
       kElements},
      {{{"name", "larc"}, {"lr", "0.1"}, {"momentum", "0.9"}, {"weight_decay", "0.1"}}, kElements},
      {{{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"trust_clip", "true"}}, kElements},
      {{{"name", "adafactor"}, {"lr", "0.01"}, {"weight_decay", "0.1"}}},
      {{{"name", "muon"},
        {"lr", "0.01"},
        {"weight_decay", "0.1"},
        {"nesterov", "true"},
        {"momentum", "0.9"},
        {"ns_bf16", "false"}},
       0,
       1e-8}};
  return all;
}

class LaunchesTest : public GpuTest {
 protected:
  struct Trained {
    std::int64_t launches = 0;  ///< those of the last update
    std::vector<at::Tensor> parameters;
  };

  std::unique_ptr<mpi::Collectives> collectives(bool is_on_gpu) const {
    return mpi::make_collectives(world_, {.timeout_s = 60, .gpu = is_on_gpu ? device_->gpu() : nullptr});
  }

  /// @param can_be_void  the device decides whether an update is done
  Trained train(bool is_on_gpu, int layers, const OptimSettings& settings, at::ScalarType type,
                bool can_be_void) const {
    const auto all = collectives(is_on_gpu);
    const auto model = std::make_shared<Layers>(widths_of(layers));
    model->to(type);
    if (is_on_gpu) model->to(device_->torch());
    DistributedDataParallel wrapper(model, world_, *all, {});
    optim::OptimWrapper optimizer = testing::make_optimizer(wrapper.store(), settings);
    Trained trained;
    for (int step = 0; step < kSteps; ++step) {
      set_gradients(*model, step);
      optim::TensorChange change;
      if (can_be_void) change.is_void = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(device_->torch()));
      const Counters cost =
          cost_of([&] { is_on_gpu ? optimizer.optimizer().step_tensors(change) : optimizer.optimizer().step(); });
      EXPECT_EQ(cost.pageable_copies, 0);
      trained.launches = cost.launches;
    }
    trained.parameters = on_host(model->parameters());
    return trained;
  }

  /// The same on every rank.
  static void set_gradients(const models::Model& model, int step) {
    double begin = step;
    for (const at::Tensor& parameter : model.parameters()) {
      const at::Tensor waves = at::arange(parameter.numel(), at::kDouble).mul_(0.37).add_(begin++).sin_();
      parameter.mutable_grad() = waves.view(parameter.sizes()).to(parameter.options());
    }
  }
};

TEST_F(LaunchesTest, OfUpdatesDoNotGrowWithTheNumberOfTensors) {
  for (const Update& update : updates()) {
    SCOPED_TRACE(text_of(update));
    const Trained on_cpu = train(false, 5, update.optim, at::kDouble, false);
    std::vector<std::int64_t> counts;
    for (const bool can_be_void : {false, true}) {
      const Trained few = train(true, 5, update.optim, at::kDouble, can_be_void);
      const Trained many = train(true, 50, update.optim, at::kDouble, can_be_void);
      EXPECT_EQ(few.launches, many.launches);
      if (update.launches > 0) {
        EXPECT_LE(few.launches, update.launches);
      }
      expect_equal(few.parameters, on_cpu.parameters, update.tolerance);
      counts.push_back(many.launches);
    }
    if (world_.is_root()) {
      std::printf("%-12s %3lld launches, %3lld where it may be void: %s\n", update.optim.at("name").c_str(),
                  static_cast<long long>(counts[0]), static_cast<long long>(counts[1]), text_of(update).c_str());
    }
  }
}

// Devices round in another order, after which bfloat16 may be the other neighbor.
TEST_F(LaunchesTest, OfUpdatesOf16BitParametersDoNotGrowEither) {
  for (const OptimSettings& optim :
       {OptimSettings{{"name", "sgd"}, {"lr", "0.05"}, {"momentum", "0.9"}},
        OptimSettings{{"name", "adamw"}, {"lr", "0.01"}},
        OptimSettings{{"name", "lamb"}, {"lr", "0.01"}, {"weight_decay", "0.1"}, {"max_grad_norm", "0.5"}}}) {
    const Trained few = train(true, 5, optim, at::kBFloat16, false);
    const Trained many = train(true, 50, optim, at::kBFloat16, false);
    EXPECT_EQ(few.launches, many.launches) << optim.at("name");
    expect_equal(few.parameters, train(false, 5, optim, at::kBFloat16, false).parameters, 0x1p-6);
    if (world_.is_root()) {
      std::printf("%-12s %3lld launches for bfloat16\n", optim.at("name").c_str(),
                  static_cast<long long>(few.launches));
    }
  }
}

TEST_F(LaunchesTest, OfNormsAndChecksDoNotGrow) {
  const auto all = collectives(true);
  for (const at::ScalarType type : {at::kDouble, at::kBFloat16}) {
    std::vector<std::int64_t> counts;
    for (const int layers : {5, 50}) {
      const auto model = std::make_shared<Layers>(widths_of(layers));
      model->to(type);
      model->to(device_->torch());
      DistributedDataParallel wrapper(model, world_, *all, {});
      for (const at::Tensor& parameter : model->parameters()) parameter.mutable_grad() = at::ones_like(parameter);
      optim::FlatParameters& parameters = wrapper.store();
      const auto elements = static_cast<double>(layers * kWidth * (kWidth + 1));
      at::Tensor norm, other_norm, is_faulty;
      const Counters cost = cost_of([&] {
        is_faulty = optim::unscale_gradients(parameters, 2);
        norm = optim::gradient_norm_tensor(parameters, 2);
        other_norm = optim::gradient_norm_tensor(parameters, 3);
      });
      counts.push_back(cost.launches);
      EXPECT_EQ(is_faulty.item<float>(), 0);
      EXPECT_NEAR(norm.item<double>(), std::sqrt(elements) / 2, 1e-4);
      EXPECT_NEAR(other_norm.item<double>(), std::cbrt(elements) / 2, 1e-4);
      model->parameters().back().mutable_grad()[3] = std::nan("");
      EXPECT_EQ(optim::unscale_gradients(parameters, 2).item<float>(), 1);
    }
    EXPECT_EQ(counts[0], counts[1]);
  }
}

/// A layer and buffers of two types.
class Buffered : public Layers {
 public:
  explicit Buffered(int rank) : Layers({3, 2}) {
    for (int i = 0; i < 20; ++i) {
      const std::string number = std::to_string(i);
      register_buffer("level" + number, at::full({2, i + 1}, i + rank, at::kFloat));
      register_buffer("count" + number, at::full({}, 10 * i + rank, at::kLong));
    }
  }
};

TEST_F(LaunchesTest, OneCollectiveForBuffersOfOneType) {
  if (world_.size() == 1) return;
  const auto all = collectives(true);
  for (const bool is_average : {true, false}) {
    Buffered model(world_.rank());
    model.to(device_->torch());
    const ModelBuffers buffers(model, *all, {});
    const Counters cost = cost_of([&] { is_average ? buffers.average() : buffers.broadcast_from(1); });
    if (fake_gpu::is_here()) {
      EXPECT_EQ(cost.nccl_calls, 2);
    }
    const double of_levels = is_average ? (world_.size() - 1) / 2.0 : 1;
    for (int i = 0; i < 20; ++i) {
      const std::string number = std::to_string(i);
      EXPECT_TRUE(at::equal(model.named_buffers()["level" + number].cpu(), at::full({2, i + 1}, i + of_levels)));
      EXPECT_EQ(model.named_buffers()["count" + number].item<std::int64_t>(), 10 * i + (is_average ? 0 : 1));
    }
  }
}

TEST_F(LaunchesTest, OneCollectiveForPostLocalAverages) {
  if (world_.size() == 1) return;
  const auto all = collectives(true);
  const auto model = std::make_shared<Layers>(widths_of(50));
  model->to(device_->torch());
  const PostLocalSgd local(*all, *all, {.start_step = 0, .averages = {{1, all.get()}}});
  DistributedDataParallel wrapper(model, world_, *all, {.comm_hook = [&](auto&) { return local.choice(); }});
  const std::vector<at::Tensor> before = on_host(model->parameters());
  wrapper.store().write_whole([&] {
    const torch::NoGradGuard no_grad;
    for (const at::Tensor& parameter : model->parameters()) parameter.add_(world_.rank());
  });
  const Counters cost = cost_of([&] { local.average_all(wrapper); });
  if (fake_gpu::is_here()) {
    EXPECT_EQ(cost.nccl_calls, 1);
  }
  std::vector<at::Tensor> expected;
  for (const at::Tensor& tensor : before) expected.push_back(tensor + (world_.size() - 1) / 2.0);
  expect_equal(on_host(model->parameters()), expected, 1e-14);
}

// Muon's shards have whole parameters, of different sizes.
TEST_F(LaunchesTest, OneCollectiveForAUnitOfUnequalShards) {
  if (world_.size() == 1) return;
  const auto all = collectives(true);
  for (const std::vector<std::int64_t>& widths : {std::vector<std::int64_t>{70, 90, 64, 33}, {64, 1, 64}}) {
    for (const int stage : {1, 3}) {
      const auto model = std::make_shared<Layers>(widths);
      model->to(device_->torch());
      const std::vector<at::Tensor> before = on_host(model->parameters());
      DdpOptions options;
      options.sharding = {.stage = stage};
      options.sharding.owns_whole_parameters = true;
      DistributedDataParallel wrapper(model, world_, *all, options);
      ParameterStore& store = wrapper.store();
      const auto units = static_cast<std::int64_t>(store.blocks().size());
      const Counters cost = cost_of([&] { store.write([] {}); });
      if (fake_gpu::is_here() && stage == 1) {
        EXPECT_EQ(cost.nccl_calls, units);
      }
      const Counters cost_of_gathering =
          cost_of([&] { store.read_whole([&] { expect_equal(on_host(model->parameters()), before, 0); }); });
      if (fake_gpu::is_here() && stage == 3) {
        EXPECT_EQ(cost_of_gathering.nccl_calls, units);
      }
    }
  }
}

}  // namespace launches_test
}  // namespace lockstep::parallel
