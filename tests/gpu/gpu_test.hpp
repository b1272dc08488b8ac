// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>

#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "batch/libtorch_versions.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/process/topology.hpp"
#include "support/device.hpp"

namespace lockstep {

/// The memory of this rank's GPU.
class CudaDevice : public mpi::Device {
 public:
  explicit CudaDevice(std::shared_ptr<const mpi::Gpu> gpu) : gpu_(std::move(gpu)) {}

  at::Device torch() const { return {at::kCUDA, static_cast<at::DeviceIndex>(gpu_->index())}; }

  std::shared_ptr<const mpi::Gpu> gpu() const override { return gpu_; }
  std::shared_ptr<std::byte> memory(std::size_t bytes) const override {
    auto tensor = std::make_shared<at::Tensor>(at::zeros({static_cast<std::int64_t>(bytes)}, options()));
    auto* const begin = static_cast<std::byte*>(tensor->mutable_data_ptr());
    return {std::move(tensor), begin};
  }
  void write(std::byte* target, const void* from, std::size_t bytes) const override {
    const auto count = static_cast<std::int64_t>(bytes);
    at::from_blob(target, {count}, options()).copy_(at::from_blob(const_cast<void*>(from), {count}, at::kByte));
  }
  void read(void* target, const std::byte* from, std::size_t bytes) const override {
    const auto count = static_cast<std::int64_t>(bytes);
    at::from_blob(target, {count}, at::kByte).copy_(at::from_blob(const_cast<std::byte*>(from), {count}, options()));
  }

 private:
  at::TensorOptions options() const { return at::TensorOptions().dtype(at::kByte).device(torch()); }

  std::shared_ptr<const mpi::Gpu> gpu_;
};

/// Gives every test this rank's GPU, or skips it and says why.
class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto driver = mpi::probe_gpu_driver();
    const int fewest = world_.all_reduce(driver.gpus, mpi::Op::min);
    if (fewest == 0) GTEST_SKIP() << (driver.fault.empty() ? "another rank has no GPU" : driver.fault);
    const mpi::Topology topology = mpi::Topology::of(world_);
    // NCCL refuses ranks on one GPU unless they seem to be on different hosts. Slow, but it works as it should.
    if (world_.all_reduce(topology.local_size, mpi::Op::max) > fewest) {
      setenv("NCCL_HOSTID", std::to_string(world_.rank()).c_str(), 0);
      setenv("NCCL_SOCKET_IFNAME", "lo", 0);
      setenv("NCCL_IB_DISABLE", "1", 0);
      setenv("NCCL_P2P_DISABLE", "1", 0);
      setenv("NCCL_MAX_CTAS", "2", 0);
    }
    device_ = std::make_unique<CudaDevice>(mpi::choose_device("cuda", world_, topology.local_rank).gpu);
    for (const char* const operation : {"conv", "rnn", "matmul"}) set_cuda_float32_precision(operation, "ieee");
    // Deterministic algorithms, which a test before this one may have asked for, also fill new memory: more launches.
    at::globalContext().setDeterministicAlgorithms(false, /*warn_only=*/false);
  }

  mpi::Communicator world_ = mpi::Communicator::world();
  std::unique_ptr<CudaDevice> device_;
};

}  // namespace lockstep
