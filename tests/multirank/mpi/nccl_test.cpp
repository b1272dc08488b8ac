// SPDX-License-Identifier: BSD-3-Clause
// What surrounds NCCL, over a module that stands in for it; tests/gpu runs the same on GPUs.
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/gpu_placement.hpp"
#include "mpi/gpu/nccl_link.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "mpi/shared/lane_tree.hpp"
#include "support/nccl_cases.hpp"
#include "support/stand_in_gpu.hpp"

namespace lockstep::mpi {
namespace nccl_test {

using testing::stand_in;

/// Device memory that the host can read as it is.
class StandInDevice : public Device {
 public:
  std::shared_ptr<const Gpu> gpu() const override { return testing::stand_in_gpu(); }
  std::shared_ptr<std::byte> memory(std::size_t bytes) const override { return testing::stand_in_memory(bytes); }
  void write(std::byte* target, const void* from, std::size_t bytes) const override {
    std::memcpy(target, from, bytes);
  }
  void read(void* target, const std::byte* from, std::size_t bytes) const override { std::memcpy(target, from, bytes); }
};

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override { testing::reset_stand_in(); }

  std::unique_ptr<Collectives> make() const {
    return make_collectives(world_, {.backend = "nccl", .timeout_s = 60, .gpu = testing::stand_in_gpu()});
  }

  /// The error that `body` throws as an Error of this kind.
  template <class Kind, class Body>
  static std::string fault_of(Body body) {
    try {
      body();
    } catch (const Kind& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  /// Begins a call in memory that lives as long as the test.
  void start_all_reduce(NcclLink& link) {
    const Call call = {
        .sequence = kSequence, .count = 16, .kind = CallKind::all_reduce, .op = ReduceOp::sum, .dtype = DType::float32};
    link.start(call, [&](gpu::Link* end) {
      return testing::stand_in_api().all_reduce(end, memory_.get(), call.count, call.dtype, call.op);
    });
  }

  static void await_abort() {
    for (int i = 0; i < 1200 && testing::stand_in_aborts() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_EQ(testing::stand_in_aborts(), 1);
  }

  void expect_alike(const std::string& text) const {
    const auto texts = world_.all_gather(text);
    for (const std::string& other : texts) EXPECT_EQ(other, texts[0]);
  }

  static constexpr std::uint64_t kSequence = 7;

  Communicator world_ = Communicator::world();
  StandInDevice device_;
  std::shared_ptr<std::byte> memory_ = testing::stand_in_memory(64);
};

TEST_F(NcclTest, EveryOperationOnDeviceMemory) { nccl_cases::every_operation(world_, device_); }
TEST_F(NcclTest, EveryTypeAndReduction) { nccl_cases::every_type(world_, device_); }
TEST_F(NcclTest, SizesAroundBordersAndManyInFlight) { nccl_cases::sizes(world_, device_); }
TEST_F(NcclTest, RangesAreHandedOverAsOnePiece) { nccl_cases::ranges(world_, device_); }
TEST_F(NcclTest, HostMemoryTravelsBesideDeviceMemory) { nccl_cases::host_memory(world_, device_); }
TEST_F(NcclTest, SplitServesEachColorAndLeavesTheParentUsable) { nccl_cases::split(world_, device_); }

// Case 125.
TEST_F(NcclTest, EndsAndBeginsAgainInTheSameProcess) {
  nccl_cases::again(world_, device_);
  EXPECT_EQ(stand_in().links, 0);
  EXPECT_EQ(stand_in().allocations, 0);
  EXPECT_EQ(testing::stand_in_aborts(), 0);
}

TEST_F(NcclTest, ABucketOutlivesTheCollectives) {
  auto collectives = make();
  BucketMemory bucket = collectives->allocate_bucket(100);
  collectives.reset();
  EXPECT_EQ(stand_in().links, 1);
  bucket = {};
  EXPECT_EQ(stand_in().links, 0);
}

TEST_F(NcclTest, AFailingRootStrandsNobody) {
  if (world_.is_root()) stand_in().id_fault = "no network";
  const auto collectives = make();
  const std::string fault = fault_of<CommError>([&] { collectives->allocate_bucket(64); });
  EXPECT_NE(fault.find("comm: nccl: the creation of the communicator id: no network"), std::string::npos) << fault;
  expect_alike(fault);
  EXPECT_EQ(fault_of<CommError>([&] { collectives->barrier(); }), fault);
}

TEST_F(NcclTest, ARankWithoutMemoryFailsTogetherWithTheOthers) {
  if (world_.rank() == world_.size() - 1) stand_in().allocation_fault = "out of memory";
  const auto collectives = make();
  const std::string fault = fault_of<Error>([&] { collectives->allocate_bucket(64); });
  EXPECT_NE(fault.find("out of memory on the GPU: 64 bytes were requested; reduce "), std::string::npos) << fault;
  expect_alike(fault);
  EXPECT_EQ(stand_in().allocations, 0);
}

// The links below have short deadlines of their own: those of a whole Collectives would hold for its ranks' meetings,
// too, and a loaded machine may be late for one.

TEST_F(NcclTest, ConnectingHasADeadline) {
  stand_in().never_connects = true;
  const std::string fault =
      fault_of<CommError>([&] { NcclLink(world_, testing::stand_in_gpu(), {.wait = {.timeout_s = 0.5}}); });
  EXPECT_NE(fault.find("did not finish within 0.5 s: a peer is late or not reachable"), std::string::npos) << fault;
  EXPECT_EQ(testing::stand_in_aborts(), 1);
  EXPECT_EQ(stand_in().links, 0);
}

TEST_F(NcclTest, AnOperationThatDoesNotEndIsAbortedAndExplained) {
  stand_in().never_ends = true;
  NcclLink link(world_, testing::stand_in_gpu(), {.wait = {.timeout_s = 2}, .diagnosis_limit_s = 100});
  start_all_reduce(link);
  link.await(kSequence);  // the host does not wait
  await_abort();
  const std::string fault = fault_of<CommError>([&] { link.throw_if_failed(); });
  EXPECT_NE(fault.find("all_reduce #7 of 16 float32 (sum) did not finish within"), std::string::npos) << fault;
  EXPECT_NE(fault.find("on any rank"), std::string::npos) << fault;
}

TEST_F(NcclTest, AnOperationThatAPeerDoesNotJoinIsExplained) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  stand_in().never_ends = true;
  NcclLink link(world_, testing::stand_in_gpu(), {.wait = {.timeout_s = 2}, .diagnosis_limit_s = 1});
  const int absent = world_.size() - 1;
  if (world_.rank() != absent) {
    start_all_reduce(link);
    await_abort();
    const std::string fault = fault_of<CommError>([&] { link.throw_if_failed(); });
    EXPECT_NE(fault.find("all_reduce #7 of 16 float32 (sum) did not finish within"), std::string::npos) << fault;
    EXPECT_NE(fault.find("rank " + std::to_string(absent)), std::string::npos) << fault;
  }
  world_.barrier();
  EXPECT_EQ(testing::stand_in_aborts(), world_.rank() == absent ? 0 : 1);
}

TEST_F(NcclTest, TheFirstErrorOfNcclIsWhatEveryLaterCallReports) {
  const auto collectives = make();
  const BucketMemory bucket = collectives->allocate_bucket(64);
  testing::set_stand_in_fault("remote process exited");
  await_abort();
  testing::set_stand_in_fault("");
  for (int i = 0; i < 2; ++i) {
    const std::string fault = fault_of<CommError>(
        [&] { collectives->start_all_reduce(bucket.bytes.data(), 16, DType::float32, ReduceOp::sum); });
    EXPECT_EQ(fault, "comm: nccl: a peer or the network failed: remote process exited");
  }
  world_.barrier();
}

// Case 115.
TEST_F(NcclTest, RanksThatAskForDifferentThingsAllHearOfIt) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  const bool is_odd = world_.rank() == world_.size() - 1;
  {
    const auto collectives = make();
    const BucketMemory bucket = collectives->allocate_bucket(64);
    const std::string fault = fault_of<CommError>(
        [&] { collectives->start_all_reduce(bucket.bytes.data(), is_odd ? 15 : 16, DType::float32, ReduceOp::sum); });
    EXPECT_NE(
        fault.find("the ranks call different operations: rank 0 called all_reduce #2 of 16 float32 (sum) on the GPU"),
        std::string::npos)
        << fault;
    expect_alike(fault);
  }
  {
    const auto collectives = make();
    const BucketMemory bucket = collectives->allocate_bucket(64);
    std::vector<float> on_host(16);
    void* const values = is_odd ? static_cast<void*>(on_host.data()) : bucket.bytes.data();
    const std::string fault =
        fault_of<CommError>([&] { collectives->start_all_reduce(values, 16, DType::float32, ReduceOp::sum); });
    EXPECT_NE(fault.find("of 16 float32 (sum) on the GPU, rank"), std::string::npos) << fault;
    expect_alike(fault);
  }
}

TEST_F(NcclTest, LanesAreForHostMemory) {
  const auto collectives = make();
  const BucketMemory bucket = collectives->allocate_bucket(4096);
  const LaneTree tree = LaneTree::even(world_.size(), world_.size());
  EXPECT_THROW(start_lane_reduce(*collectives, bucket.bytes.data(), 16, 16, DType::float32, ReduceOp::sum, tree),
               std::logic_error);
  std::vector<float> on_host(16, 1.0F);
  collectives->wait(start_lane_reduce(*collectives, on_host.data(), 16, 16, DType::float32, ReduceOp::sum, tree));
  EXPECT_EQ(on_host, std::vector<float>(16, static_cast<float>(world_.size())));
}

// Each launch works with what lies in the memory then.
TEST_F(NcclTest, ARecordedReductionIsLaunchedAgainAndAgain) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  {
    const auto collectives = make();
    const BucketMemory bucket = collectives->allocate_bucket(64);
    auto* const values = reinterpret_cast<float*>(bucket.bytes.data());
    StepGraph graph(testing::stand_in_gpu(), *collectives);
    values[0] = 1;
    EXPECT_EQ(graph.record([&] { collectives->all_reduce(values, 16, DType::float32, ReduceOp::sum); }), "");
    for (int round = 1; round <= 3; ++round) {
      if (round > 1) values[0] = static_cast<float>(round);
      graph.launch();
      EXPECT_EQ(values[0], static_cast<float>(round * world_.size()));
    }
    values[0] = 5;  // anything that is not recorded works as before
    collectives->all_reduce(values, 16, DType::float32, ReduceOp::sum);
    EXPECT_EQ(values[0], static_cast<float>(5 * world_.size()));
    EXPECT_EQ(stand_in().launches, 3);
  }
  EXPECT_EQ(stand_in().graphs, 0);
  EXPECT_EQ(stand_in().links, 0);
}

TEST_F(NcclTest, WhatCannotBeRecordedIsExplainedAndLeavesTheLinkUsable) {
  const auto collectives = make();
  const BucketMemory bucket = collectives->allocate_bucket(64);
  auto* const values = reinterpret_cast<float*>(bucket.bytes.data());
  {
    StepGraph graph(testing::stand_in_gpu(), *collectives);
    EXPECT_EQ(graph.record([] { throw std::runtime_error("the host reads a value\nwith a stack"); }),
              "the host reads a value");
  }
  stand_in().capture_fault = "operation not permitted";
  {
    StepGraph graph(testing::stand_in_gpu(), *collectives);
    EXPECT_EQ(graph.record([&] { collectives->all_reduce(values, 16, DType::float32, ReduceOp::sum); }),
              "operation not permitted");
  }
  EXPECT_EQ(stand_in().graphs, 0);
  values[0] = 2;
  collectives->all_reduce(values, 16, DType::float32, ReduceOp::sum);
  EXPECT_EQ(values[0], static_cast<float>(2 * world_.size()));
}

TEST_F(NcclTest, RanksOnOneGpuAreRefusedUnlessTheyPlayDifferentHosts) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  stand_in().shares_gpu = true;
  const std::string fault = fault_of<ConfigError>([&] { make(); });
  EXPECT_EQ(fault,
            "comm: ranks 0 and 1 have the same GPU (GPU-of-rank-0), which NCCL does not support; start one rank per "
            "GPU or, for tests, give each rank a different NCCL_HOSTID");
  setenv("NCCL_HOSTID", std::to_string(world_.rank()).c_str(), 1);
  EXPECT_EQ(make()->name(), "nccl");
  unsetenv("NCCL_HOSTID");
}

TEST_F(NcclTest, RanksOnPartsOfOneGpuAreRefused) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  stand_in().shares_bus = true;
  EXPECT_EQ(fault_of<ConfigError>([&] { make(); }),
            "comm: ranks 0 and 1 have parts (MIG) of the same GPU (0000:00:00.0), which NCCL does not support; start "
            "one rank per GPU or, for tests, give each rank a different NCCL_HOSTID");
}

// The module that stands in shows each rank its own GPU only, as --gpus-per-task does.
TEST_F(NcclTest, GpusThatAreHiddenFromPeersAreWorthAWarning) {
  const std::vector<std::string> warnings = place_near_gpu(world_, *testing::stand_in_gpu(), false).warnings;
  if (world_.size() == 1) {
    EXPECT_TRUE(warnings.empty()) << warnings.front();
    return;
  }
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("may not open the GPUs of the other ranks"), std::string::npos) << warnings[0];
  EXPECT_NE(warnings[0].find("srun --gpu-bind=none"), std::string::npos) << warnings[0];
  expect_alike(warnings[0]);
}

TEST_F(NcclTest, MemoryOfBucketsIsCounted) {
  const std::int64_t before = bucket_bytes_on_gpu();
  {
    const auto collectives = make();
    const BucketMemory first = collectives->allocate_bucket(1000);
    const BucketMemory second = collectives->allocate_bucket(24);
    EXPECT_EQ(bucket_bytes_on_gpu() - before, 1024);
  }
  EXPECT_EQ(bucket_bytes_on_gpu(), before);
}

TEST_F(NcclTest, VersionsMustBeTheSame) {
  stand_in().nccl_loaded = 22703;
  EXPECT_EQ(fault_of<ConfigError>([&] { make(); }),
            "comm: lockstep_gpu.so was built for NCCL 2.28.9, but 2.27.3 is loaded; LD_LIBRARY_PATH must not name "
            "another libnccl");
}

TEST_F(NcclTest, AutoIsForSeveralRanksWithGpus) {
  const auto collectives = make_collectives(world_, {.gpu = testing::stand_in_gpu()});
  EXPECT_EQ(collectives->name(), world_.size() == 1 ? "self" : "nccl");
  if (world_.size() == 1) return;
  EXPECT_EQ(
      fault_of<ConfigError>([&] { make_collectives(world_, {.backend = "mpi", .gpu = testing::stand_in_gpu()}); }),
      "comm.backend: mpi does not support GPUs; use auto or nccl");
}

std::string maps() {
  std::ifstream file("/proc/self/maps");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(NcclTest, WithoutAGpuNothingOfCudaGetsIntoTheProcess) {
  if (probe_gpu_driver().gpus > 0) GTEST_SKIP() << "here is a GPU";
  EXPECT_EQ(choose_device("cpu", world_, 0).gpu, nullptr);
  const DeviceChoice choice = choose_device("auto", world_, 0);
  EXPECT_EQ(choice.gpu, nullptr);
  EXPECT_EQ(choice.remark, "");
  const std::string fault = fault_of<ConfigError>([&] { choose_device("cuda", world_, 0); });
  EXPECT_NE(fault.find("run.device=cuda: "), std::string::npos) << fault;
  EXPECT_NE(fault.find("; or use run.device=cpu"), std::string::npos) << fault;
  expect_alike(fault);
  for (const char* const library : {"libcuda.so", "libtorch_cuda", "libc10_cuda", "libnccl", "lockstep_gpu"}) {
    EXPECT_EQ(maps().find(library), std::string::npos) << library;
  }
}

}  // namespace nccl_test
}  // namespace lockstep::mpi
