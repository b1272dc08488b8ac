// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <fstream>

#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "support/nccl_cases.hpp"

namespace lockstep::mpi {
namespace nccl_test {

class GpuNcclTest : public GpuTest {};

TEST_F(GpuNcclTest, EveryOperationOnDeviceMemory) { nccl_cases::every_operation(world_, *device_); }
TEST_F(GpuNcclTest, EveryTypeAndReduction) { nccl_cases::every_type(world_, *device_); }
TEST_F(GpuNcclTest, SizesAroundBordersAndManyInFlight) { nccl_cases::sizes(world_, *device_); }
TEST_F(GpuNcclTest, RangesAreHandedOverAsOnePiece) { nccl_cases::ranges(world_, *device_); }
TEST_F(GpuNcclTest, HostMemoryTravelsBesideDeviceMemory) { nccl_cases::host_memory(world_, *device_); }
TEST_F(GpuNcclTest, SplitServesEachColorAndLeavesTheParentUsable) { nccl_cases::split(world_, *device_); }
TEST_F(GpuNcclTest, EndsAndBeginsAgainInTheSameProcess) { nccl_cases::again(world_, *device_); }

// Case 121: the operation is on a stream of its own, and later work of this one finds its result.
TEST_F(GpuNcclTest, WorkAfterTheWaitFollowsTheOperation) {
  const auto collectives = nccl_cases::make(world_, *device_);
  const at::Tensor values = torch::zeros({1 << 22}, at::TensorOptions().dtype(at::kFloat).device(device_->torch()));
  for (int round = 1; round <= 20; ++round) {
    values.fill_(world_.rank() + round);  // queued, not done
    const Ticket ticket =
        collectives->start_all_reduce(values.mutable_data_ptr(), 1 << 22, DType::float32, ReduceOp::sum);
    collectives->wait(ticket);
    values.mul_(2);
    const int sum = world_.size() * (world_.size() - 1) / 2 + world_.size() * round;
    EXPECT_EQ(values.min().item<float>(), static_cast<float>(2 * sum));
    EXPECT_EQ(values.max().item<float>(), static_cast<float>(2 * sum));
  }
}

// An operation that a peer never joins is aborted and explained, and the GPU is of use afterwards.
TEST_F(GpuNcclTest, APeerThatStaysAwayIsNoticed) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  if (fake_gpu::is_eager()) GTEST_SKIP() << "the call itself would wait";
  {
    const auto collectives = make_collectives(world_, {.backend = "nccl", .timeout_s = 3, .gpu = device_->gpu()});
    const at::Tensor values = torch::ones({100}, at::TensorOptions().device(device_->torch()));
    const auto reduce = [&] { collectives->all_reduce(values.mutable_data_ptr(), 100, DType::float32, ReduceOp::max); };
    for (int i = 0; i < 250; ++i) reduce();  // past the calls that are compared beforehand
    EXPECT_EQ(values.sum().item<float>(), 100);
    if (world_.is_root()) {
      reduce();
      values.sum().item<float>();  // waits for the abort
      std::string text;
      try {
        reduce();
      } catch (const CommError& error) {
        text = error.what();
      }
      EXPECT_NE(text.find("did not finish within"), std::string::npos) << text;
      EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
    }
    world_.barrier();
  }
  nccl_cases::again(world_, *device_);
}

// The communicator is aborted while a graph with its operations lives, and is ended after the graph.
TEST_F(GpuNcclTest, APeerThatStaysAwayFromACapturedStepIsNoticed) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  if (fake_gpu::is_eager()) GTEST_SKIP() << "the call itself would wait";
  StepGraph::use_stream(*device_->gpu());
  {
    const auto collectives = make_collectives(world_, {.backend = "nccl", .timeout_s = 3, .gpu = device_->gpu()});
    const at::Tensor values = torch::ones({100}, at::TensorOptions().device(device_->torch()));
    const auto reduce = [&] { collectives->all_reduce(values.mutable_data_ptr(), 100, DType::float32, ReduceOp::max); };
    reduce();
    StepGraph graph(device_->gpu(), *collectives);
    EXPECT_EQ(graph.record(reduce), "");
    graph.launch();
    EXPECT_EQ(values.sum().item<float>(), 100);
    if (world_.is_root()) {
      graph.launch();
      values.sum().item<float>();  // waits for the abort
      std::string text;
      try {
        graph.launch();
      } catch (const CommError& error) {
        text = error.what();
      }
      EXPECT_NE(text.find("did not finish within"), std::string::npos) << text;
    }
    world_.barrier();
  }
  nccl_cases::again(world_, *device_);
}

// NCCL must be the one that LibTorch has: one file, mapped once.
TEST_F(GpuNcclTest, OneNcclIsInTheProcess) {
  std::ifstream maps("/proc/self/maps");
  std::string first;
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path == std::string::npos || line.find("libnccl") == std::string::npos) continue;
    if (first.empty()) first = line.substr(path);
    EXPECT_EQ(line.substr(path), first);
  }
  EXPECT_NE(first, "");
}

}  // namespace nccl_test
}  // namespace lockstep::mpi
