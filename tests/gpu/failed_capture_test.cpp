// SPDX-License-Identifier: BSD-3-Clause
// A capture that fails leaves the GPU, LibTorch's allocators and its generator of random numbers as they were.
#include <ATen/DeviceAccelerator.h>

#include <memory>

#include "gpu_test.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "support/nccl_cases.hpp"

namespace lockstep::mpi {
namespace failed_capture_test {

class GpuFailedCaptureTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    if (IsSkipped()) return;
    StepGraph::use_stream(*device_->gpu());
    collectives_ = make_collectives(world_, {.gpu = device_->gpu()});
  }

  at::Tensor ones() const {
    return torch::ones({4096}, at::TensorOptions().dtype(at::kFloat).device(device_->torch()));
  }

  /// The host reads a value, which no capture allows.
  std::string record_a_read(const at::Tensor& values) const {
    StepGraph graph(device_->gpu(), *collectives_);
    return graph.record([&] { torch::dropout(values, 0.5, /*train=*/true).sum().item<float>(); });
  }

  std::unique_ptr<Collectives> collectives_;
};

TEST_F(GpuFailedCaptureTest, DropoutDrawsAsBefore) {
  const at::Tensor values = ones();
  torch::manual_seed(5);
  const at::Tensor expected = torch::dropout(values, 0.5, true).cpu();
  torch::manual_seed(5);
  EXPECT_NE(record_a_read(values), "");
  EXPECT_TRUE(at::equal(torch::dropout(values, 0.5, true).cpu(), expected));
}

TEST_F(GpuFailedCaptureTest, MemoryIsFreedAndGivenAgain) {
  EXPECT_NE(record_a_read(ones()), "");
  at::accelerator::emptyCache();
  at::Tensor values = ones();
  const void* const place = values.const_data_ptr();
  values.reset();
  EXPECT_EQ(ones().const_data_ptr(), place);  // the allocator caches as before
}

TEST_F(GpuFailedCaptureTest, TheNextCaptureSucceeds) {
  const at::Tensor values = ones();
  EXPECT_NE(record_a_read(values), "");
  StepGraph graph(device_->gpu(), *collectives_);
  EXPECT_EQ(graph.record([&] {
    values.mul_(2);
    collectives_->all_reduce(values.mutable_data_ptr(), 4096, DType::float32, ReduceOp::sum);
  }),
            "");
  graph.launch();
  graph.launch();
  const auto size = static_cast<float>(world_.size());
  EXPECT_EQ(values.max().item<float>(), 4 * size * size);
}

// Ranks whose recordings end at different operations are in step afterwards.
TEST_F(GpuFailedCaptureTest, OneRankFailsBeforeItsFirstOperation) {
  const at::Tensor values = ones();
  const auto reduce = [&] { collectives_->all_reduce(values.mutable_data_ptr(), 4096, DType::float32, ReduceOp::sum); };
  reduce();
  {
    StepGraph graph(device_->gpu(), *collectives_);
    const std::string reason = graph.record([&] {
      if (world_.is_root()) throw std::runtime_error("no memory");
      reduce();
    });
    EXPECT_EQ(reason, world_.is_root() ? "no memory" : "");
  }
  reduce();
  const auto size = static_cast<float>(world_.size());
  EXPECT_EQ(values.max().item<float>(), size * size);
}

}  // namespace failed_capture_test
}  // namespace lockstep::mpi
