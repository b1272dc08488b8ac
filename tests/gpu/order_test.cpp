// SPDX-License-Identifier: BSD-3-Clause
// Every wait between streams, and of the host for a stream, has a case that fails without it.
#include <ATen/DeviceAccelerator.h>
#include <c10/core/StreamGuard.h>

#include "batch/late_values.hpp"
#include "mpi/gpu/nccl_link.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "optim/update/live_numbers.hpp"
#include "ordered_work.hpp"
#include "parallel/store/step_recorder.hpp"
#include "parallel/store/tensor_collectives.hpp"
#include "parallel/store/transfers.hpp"

namespace lockstep {
namespace order_test {

using fake_gpu::access_on_host;
using fake_gpu::Busy;
using fake_gpu::delay;

// ---- NCCL

class NcclOrderTest : public fake_gpu::OrderTest {
 protected:
  std::unique_ptr<mpi::Collectives> make_collectives() const {
    return mpi::make_collectives(world_, {.backend = "nccl", .timeout_s = 60, .gpu = device_->gpu()});
  }
  std::shared_ptr<mpi::NcclLink> make_link(const mpi::NcclOptions& options = {}) const {
    return std::make_shared<mpi::NcclLink>(world_, device_->gpu(), options);
  }
  /// rank + 1 everywhere.
  at::Tensor mine(std::int64_t count = 4096) const { return on_device(world_.rank() + 1, count); }
  double sum() const { return world_.size() * (world_.size() + 1) / 2.0; }
};

mpi::Ticket start_sum(const at::Tensor& values, mpi::Collectives& collectives) {
  return parallel::start_all_reduce(values, collectives, mpi::ReduceOp::sum);
}

TEST_F(NcclOrderTest, OperationsAreBetweenTheWorkBeforeAndBehindThem) {
  const auto all = make_collectives();
  const at::Tensor reduced = mine();
  all->wait(start_sum(reduced, *all));
  reduced.add_(1);
  const at::Tensor sent = mine();
  parallel::broadcast(sent, *all, 0);
  sent.add_(1);
  const at::Tensor gathered = on_device(0, 4096 * world_.size());
  all->wait(parallel::start_all_gather(mine(), gathered, *all));
  gathered.add_(1);
  const at::Tensor scattered = on_device(0);
  all->wait(parallel::start_reduce_scatter(mine(4096 * world_.size()), scattered, *all, mpi::ReduceOp::sum));
  scattered.add_(1);
  expect_all(reduced, sum() + 1);
  expect_all(sent, 2);
  EXPECT_EQ(gathered.sum().item<double>(), 4096 * (sum() + world_.size()));
  if (world_.size() > 1) expect_all(scattered, sum() + 1);
}

// The second operation asks whether the first one is over.
TEST_F(NcclOrderTest, AnOperationThatIsNotOverIsNoError) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  const auto all = make_collectives();
  const at::Tensor one = mine();
  const at::Tensor other = mine();
  const at::Tensor beside = on_device(1);
  Busy busy(device());
  const mpi::Ticket first = start_sum(one, *all);
  const mpi::Ticket second = start_sum(other, *all);
  EXPECT_NO_THROW(beside.add_(1));
  all->wait(first);
  one.add_(1);
  all->wait(second);
  other.add_(2);
  busy.end();
  expect_all(one, sum() + 1);
  expect_all(other, sum() + 2);
}

TEST_F(NcclOrderTest, TheEndWaitsForAnOperationThatNobodyWaitedFor) {
  const at::Tensor values = mine();
  ::testing::internal::CaptureStderr();
  {
    const auto all = make_collectives();
    delay(device());
    start_sum(values, *all);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr().find("lockstep: "), std::string::npos);
  expect_all(values, sum());
}

// NCCL takes no call while it launches an operation, and gives memory back while work still uses it.
TEST_F(NcclOrderTest, MemoryComesAndGoesBetweenOperations) {
  const c10::StreamGuard on_another_stream(
      c10::impl::VirtualGuardImpl(device().type()).getStreamFromGlobalPool(device()));
  const auto link = make_link();
  std::uint64_t calls = 0;
  const auto start = [&](void* values) {
    link->start({.sequence = ++calls, .count = 4096, .kind = mpi::CallKind::all_reduce, .dtype = DType::float64},
                [&](mpi::gpu::Link* used) {
                  return device_->gpu()->api().all_reduce(used, values, 4096, DType::float64, mpi::ReduceOp::sum);
                });
  };
  const at::Tensor values = mine();
  const fake_gpu::Counters cost = fake_gpu::cost_of([&] {
    start(values.mutable_data_ptr());
    mpi::BucketMemory bucket = mpi::NcclLink::allocate(link, 4096 * sizeof(double));
    delay(device());
    start(bucket.bytes.data());
    bucket = {};
  });
  EXPECT_EQ(cost.device_frees, 1);
}

TEST_F(NcclOrderTest, AGraphIsWatchedUntilItIsOver) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  const auto link = make_link({.wait = {.timeout_s = 0.5}, .diagnosis_limit_s = 0.1});
  link->replay([] {});
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  EXPECT_FALSE(link->has_failed());
  Busy busy(device());
  link->replay([] {});
  EXPECT_TRUE(fake_gpu::comes_true([&] { return link->has_failed(); }));
}

// ---- Graphs

class CaptureOrderTest : public NcclOrderTest {
 protected:
  void SetUp() override {
    NcclOrderTest::SetUp();
    if (IsSkipped()) return;
    mpi::StepGraph::use_stream(*device_->gpu());
    all_ = make_collectives();
    all_->wait(start_sum(on_device(0), *all_));  // connects the ranks
  }

  std::unique_ptr<mpi::Collectives> all_;
};

TEST_F(CaptureOrderTest, WorkOfTheDefaultStreamComesFirst) {
  std::thread([&] {
    const at::Tensor values = on_device(1);
    mpi::StepGraph::use_stream(*device_->gpu());
    values.add_(1);
    expect_all(values, 2);
  }).join();
}

TEST_F(CaptureOrderTest, OtherThreadsAskForTheirEvents) {
  const at::Tensor values = on_device(1);
  c10::Event before(device().type());
  before.record(c10::impl::VirtualGuardImpl(device().type()).getStream(device()));
  mpi::StepGraph graph(device_->gpu(), *all_);
  const std::string reason = graph.record([&] {
    values.mul_(2);
    std::thread([&] { EXPECT_NO_THROW(before.query()); }).join();
  });
  EXPECT_EQ(reason, "");
  graph.launch();
  expect_all(values, 2);
}

// No memory is left in the cache: to free it would wait for the device.
TEST_F(CaptureOrderTest, AGraphFindsWhatWasStartedBefore) {
  const at::Tensor values = mine();
  const at::Tensor other = mine();
  at::accelerator::emptyCache();
  delay(device());
  const mpi::Ticket before = start_sum(values, *all_);
  mpi::StepGraph graph(device_->gpu(), *all_);
  const std::string reason = graph.record([&] {
    all_->wait(before);
    values.mul_(2);
    all_->wait(start_sum(other, *all_));
  });
  EXPECT_EQ(reason, "");
  graph.launch();
  expect_all(values, 2 * sum());
  expect_all(other, sum());
}

TEST_F(CaptureOrderTest, AGraphEndsBehindAnOperationThatNobodyWaitsFor) {
  const at::Tensor values = mine();
  mpi::StepGraph graph(device_->gpu(), *all_);
  EXPECT_EQ(graph.record([&] { start_sum(values, *all_); }), "");
  graph.launch();
  values.mul_(2);
  expect_all(values, 2 * sum());
}

TEST_F(CaptureOrderTest, OperationsOfTwoCommunicatorsHaveAnOrder) {
  const auto part = all_->split(0);
  const at::Tensor one = mine();
  const at::Tensor other = mine();
  part->wait(start_sum(on_device(0), *part));  // connects the ranks
  mpi::StepGraph graph(device_->gpu(), *all_);
  const std::string reason = graph.record([&] {
    const mpi::Ticket first = start_sum(one, *all_);
    const mpi::Ticket second = start_sum(other, *part);
    all_->wait(first);
    part->wait(second);
  });
  EXPECT_EQ(reason, "");
  graph.launch();
  expect_all(one, sum());
  expect_all(other, sum());
}

// A capture that has failed refuses operations. The one that was refused has no end to wait for.
TEST_F(CaptureOrderTest, AnOperationThatIsRefusedEndsARecordingOnly) {
  const at::Tensor values = mine();
  mpi::StepGraph graph(device_->gpu(), *all_);
  const std::string reason = graph.record([&] {
    EXPECT_THROW(values.sum().item<double>(), std::exception);
    start_sum(values, *all_);
  });
  EXPECT_NE(reason, "");
}

// ---- Copies

class CopyOrderTest : public fake_gpu::OrderTest {};

TEST_F(CopyOrderTest, ATransferIsBetweenTheWorkBeforeAndBehindIt) {
  const at::Tensor here = on_device(0);
  const at::Tensor there = on_host(0);
  {
    parallel::Transfers transfers(device(), 2);
    here.fill_(1);
    transfers.start(0, there, here);
    transfers.follow(0);
    here.fill_(2);
    transfers.start(1, there, here);
  }
  here.fill_(3);
  expect_all(here, 3);
}

TEST_F(CopyOrderTest, TheHostFindsWhatWasTransferred) {
  const at::Tensor here = on_device(0);
  const at::Tensor there = on_host(0);
  parallel::Transfers transfers(device(), 1);
  here.fill_(1);
  transfers.start(0, there, here);
  transfers.await(0);
  access_on_host(there.const_data_ptr(), there.nbytes(), false);
  expect_all(there, 1);
}

// A batch arrives while the step before is computed, and its memory is not used for the next one before it was read.
TEST_F(CopyOrderTest, BatchesArriveBesideTheWorkOfTheStep) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  parallel::BatchCopies copies(device());
  Busy busy(device());
  std::vector<at::Tensor> sums;
  for (int round = 1; round <= 3; ++round) {
    const batch::Batch copied = copies.copy(batch::Batch(on_host(round)));
    const auto* const arriving = static_cast<const double*>(fake_gpu::peek(copied.input()));
    EXPECT_TRUE(fake_gpu::comes_true([&] { return arriving[4095] == round; })) << round;
    sums.push_back(copied.input().sum());
  }
  busy.end();
  for (int round = 1; round <= 3; ++round) EXPECT_EQ(sums[round - 1].item<double>(), 4096 * round);
}

TEST_F(CopyOrderTest, LateValuesAreReadWhenTheyHaveArrived) {
  batch::LateValues late;
  delay(device());
  late.queue(on_device(5));
  const at::Tensor values = late.take();
  access_on_host(values.const_data_ptr(), values.nbytes(), false);
  expect_all(values, 5);
}

TEST_F(CopyOrderTest, NumbersOfAStepAreNotThoseOfTheNext) {
  optim::LiveNumbers live(device());
  double value = 1;
  const at::Tensor number = live.number([&] { return value; });
  delay(device());
  EXPECT_TRUE(live.refresh());
  const at::Tensor first = number.clone();
  value = 2;
  EXPECT_TRUE(live.refresh());
  const at::Tensor second = number.clone();
  EXPECT_EQ(first.item<double>(), 1);
  EXPECT_EQ(second.item<double>(), 2);
}

// ---- Times

TEST_F(CopyOrderTest, AMarkIsPassedAfterTheWorkBeforeIt) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  const auto marks = parallel::make_stream_marks(device());
  Busy busy(device());
  delay(device());
  const auto mark = marks->mark();
  EXPECT_FALSE(marks->is_over(mark));
  busy.end();
  marks->wait(mark);
  EXPECT_TRUE(marks->is_over(mark));
}

TEST_F(CopyOrderTest, AReportHasTheStepsThatTheDeviceHasNotDoneYet) {
  parallel::StepRecorder recorder(parallel::make_stream_marks(device()));
  delay(device());
  for (int step = 0; step < 5; ++step) {
    recorder.micro_batch_begins();
    recorder.micro_batch_ends(/*completes_step=*/true);
  }
  EXPECT_EQ(recorder.report(world_).steps, 2);  // the first three are not counted
}

}  // namespace order_test
}  // namespace lockstep
