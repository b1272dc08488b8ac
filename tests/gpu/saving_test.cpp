// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of what lies on a GPU, and the comparison of replicas there.
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <optional>
#include <span>

#include "checkpoints/store/store.hpp"
#include "engine/resume/run_state.hpp"
#include "engine/saving/replicas.hpp"
#include "engine/state/device_copies.hpp"
#include "gpu_test.hpp"
#include "multirank/engine/small_run.hpp"
#include "parallel/store/parameter_store.hpp"
#include "support/archives.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::engine {
namespace gpu_saving_test {

const Settings kOnGpu = with(kTwelveSteps, {{"run.device", "cuda"},
                                            {"data.workers", "0"},
                                            {"run.threads", "1"},
                                            {"run.peak_flops", "0"},
                                            {"ckpt.every", "never"}});

class GpuSavingTest : public GpuTest {
 protected:
  /// Trains with checkpoints after every third step.
  std::string train(const std::string& name, const Settings& settings) {
    if (!folder_) shared_ = world_.broadcast(folder_.emplace().path());
    SmallRun run(world_, with(with(kOnGpu, {{"ckpt.every", "3"}, {"ckpt.keep_last", "9"}}), settings));
    std::string directory = shared_ + "/" + name;
    run.trainer.add_hook(average_hook(EmaSettings::from(run.sections.at("ema"))));
    run.trainer.add_hook(run.checkpoint_hook(directory, "config"));
    run.trainer.train();
    world_.barrier();
    return directory;
  }

  void expect_equal_checkpoints(const std::string& some, const std::string& others) const {
    if (!world_.is_root()) return;
    for (const std::int64_t step : {3, 6, 9, 12}) {
      EXPECT_EQ(testing::differences(checkpoints::read(checkpoints::checkpoint_of(some, step)),
                                     checkpoints::read(checkpoints::checkpoint_of(others, step))),
                "")
          << others << " at " << step;
    }
  }

  /// Says "" or how the comparison of replicas ended.
  std::string difference_of(const SmallRun& run) const {
    try {
      require_equal_replicas(world_, run.model.wrapper->store());
      return "";
    } catch (const CommError& error) {
      EXPECT_TRUE(error.is_agreed());
      return error.what();
    }
  }

  at::TensorOptions on_gpu() const { return at::TensorOptions().dtype(at::kFloat).device(device_->torch()); }

  std::optional<testing::TemporaryFolder> folder_;
  std::string shared_;  // rank 0's folder
};

// The tensors change, and their memory is used for others, right after the copies were queued.
TEST_F(GpuSavingTest, CopiesHaveTheValuesOfTheMomentAtWhichTheyAreQueued) {
  DeviceCopies copies;
  for (int round = 0; round < 3; ++round) {
    copies.begin();
    EXPECT_FALSE(copies.arrival());
    std::vector<at::Tensor> live = {at::rand({300, 500}, on_gpu()),
                                    at::rand({4, 3, 5, 6}, on_gpu()).to(at::MemoryFormat::ChannelsLast),
                                    at::rand({70, 50}, on_gpu()).t(),
                                    at::rand({}, on_gpu()),
                                    at::rand({0, 3}, on_gpu()),
                                    at::rand({7}, on_gpu()).to(at::kBFloat16),
                                    at::arange(5, on_gpu().dtype(at::kLong)),
                                    at::ones({3}, on_gpu().dtype(at::kBool))};
    std::vector<at::Tensor> before;
    for (const at::Tensor& tensor : live) before.push_back(tensor.cpu().contiguous());
    std::vector<checkpoints::Array> arrays;
    for (at::Tensor& tensor : live) {
      arrays.push_back(copies.queue(tensor, "a tensor"));
      tensor.zero_();
      tensor.reset();
      at::full({100000}, 9, on_gpu());
    }
    copies.arrival()();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(arrays[i].is_stable);
      EXPECT_TRUE(at::equal(tensor_over(arrays[i]), before[i])) << i;
    }
  }
}

TEST_F(GpuSavingTest, MemoryIsUsedAgainOnceNobodyBorrowsIt) {
  DeviceCopies copies;
  const at::Tensor values = at::rand({1000}, on_gpu());
  copies.begin();
  checkpoints::Array first = copies.queue(values, "values");
  const std::byte* const place = first.bytes.data();
  copies.begin();
  const checkpoints::Array second = copies.queue(values.mul(2), "values");
  EXPECT_NE(second.bytes.data(), place);
  copies.arrival()();
  EXPECT_TRUE(at::equal(tensor_over(first), values.cpu()));
  EXPECT_TRUE(at::equal(tensor_over(second), values.mul(2).cpu()));
  first = {};
  DeviceCopies others;
  others.begin();
  others.queue(values, "values");
  others.begin();
  const std::byte* const again = others.queue(values, "values").bytes.data();
  others.begin();
  EXPECT_EQ(others.queue(values, "values").bytes.data(), again);
}

TEST_F(GpuSavingTest, SavesBesideTheTrainingWriteWhatWaitingSavesWrite) {
  const Settings averaged = {{"ema.kind", "ema"}, {"train.clip_norm", "1"}};
  for (const char* const stage : {"0", "1", "3"}) {
    SCOPED_TRACE(std::string("stage ") + stage);
    Settings settings = averaged;
    if (*stage != '0') settings = with(settings, {{"strategy.name", "sharded"}, {"strategy.stage", stage}});
    const std::string name = std::string("stage") + stage;
    const std::string waiting = train(name + "-waiting", with(settings, {{"ckpt.async", "false"}}));
    expect_equal_checkpoints(waiting, train(name + "-beside", settings));
  }
}

// Such ranks train different models, and their checkpoint would hide it.
TEST_F(GpuSavingTest, ReplicasThatDifferAreFoundAndNamed) {
  SmallRun run(world_, with(kOnGpu, {{"train.precision", "fp32"}}));
  const torch::NoGradGuard no_grad;
  const bool is_last = world_.rank() == world_.size() - 1 && world_.size() > 1;
  const at::Tensor bias = run.model.wrapper->model().named_parameters()["hidden0.bias"];
  const at::Tensor weight = run.model.wrapper->model().named_parameters()["hidden0.weight"];
  EXPECT_EQ(difference_of(run), "");
  const auto expect_found = [&](const std::string& name, const at::Tensor& changed,
                                const std::function<void()>& change) {
    const at::Tensor before = changed.clone();
    if (is_last) change();
    const std::string found = difference_of(run);
    const std::string expected =
        "parameter '" + name + "' differs from rank 0's on rank " + std::to_string(world_.size() - 1) + ": ";
    EXPECT_EQ(found.find(expected), world_.size() > 1 ? 0 : std::string::npos) << found;
    changed.copy_(before);
    EXPECT_EQ(difference_of(run), "");
  };
  expect_found("hidden0.bias", bias, [&] { bias[3].fill_(1e-30); });
  expect_found("hidden0.bias", bias, [&] { bias[0].neg_(); });
  expect_found("hidden0.weight", weight, [&] {
    const at::Tensor kept = weight[0][1].clone();
    weight[0][1].copy_(weight[2][5]);
    weight[2][5].copy_(kept);
  });
}

// The host may write what is offloaded only when the device has read what was written before.
TEST_F(GpuSavingTest, AnUpdateOnTheHostWaitsForTheReturnOfTheLastOne) {
  for (const char* const stage : {"1", "3"}) {
    SCOPED_TRACE(std::string("stage ") + stage);
    SmallRun run(world_, with(kOnGpu, {{"strategy.name", "sharded"},
                                       {"strategy.stage", stage},
                                       {"strategy.offload", "true"},
                                       {"train.precision", "fp32"}}));
    parallel::ParameterStore& store = run.model.wrapper->store();
    const auto fill = [&store](float value) {
      for (std::size_t b = 0; b < store.blocks().size(); ++b) {
        const std::span<std::byte> bytes = store.bytes_of_block(b);
        auto* const values = reinterpret_cast<float*>(bytes.data());
        std::fill(values, values + bytes.size() / sizeof(float), value);
      }
    };
    const torch::NoGradGuard no_grad;
    const at::Tensor large = at::ones({700, 700}, on_gpu());
    at::Tensor seen;
    for (int i = 0; i < 4; ++i) at::mm(large, large);  // keeps the device busy while the host goes on
    store.write([&] { fill(3); });
    store.read_whole([&] { seen = run.model.wrapper->model().named_parameters()["hidden0.bias"].clone(); });
    store.write([&] { fill(5); });
    EXPECT_TRUE(at::equal(seen.cpu(), at::full(seen.sizes(), 3.F)));
    store.read_whole([&] { seen = run.model.wrapper->model().named_parameters()["hidden0.bias"].clone(); });
    EXPECT_TRUE(at::equal(seen.cpu(), at::full(seen.sizes(), 5.F)));
  }
}

}  // namespace gpu_saving_test
}  // namespace lockstep::engine
