// SPDX-License-Identifier: BSD-3-Clause
// The order between a session on a GPU and a stream of the program. Work without an order ends the process.
#include <lockstep/core/error.hpp>
#include <lockstep/session.hpp>

#include <c10/core/StreamGuard.h>

#include "multirank/embed/sessions.hpp"
#include "ordered_work.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace session_order_test {

using fake_gpu::access_on_host;
using fake_gpu::Busy;
using fake_gpu::delay;
using testing::samples;
using testing::small_settings;

/// A stream that the program has made, which no other one waits for.
class ProgramStream {
 public:
  explicit ProgramStream(at::Device device) : handle_(made(device)), stream_(named(device, handle_)) {}
  ProgramStream(const ProgramStream&) = delete;
  ProgramStream& operator=(const ProgramStream&) = delete;
  ~ProgramStream() {
    synchronize();
    fake_gpu::found<cudaError_t(cudaStream_t)>("cudaStreamDestroy")(handle_);
  }

  cudaStream_t handle() const { return handle_; }
  const c10::Stream& torch() const { return stream_; }
  template <class Work>
  auto run(const Work& work) const {
    const c10::StreamGuard here(stream_);
    return work();
  }
  void synchronize() const { stream_.synchronize(); }

 private:
  static cudaStream_t made(at::Device device) {
    const c10::DeviceGuard here(device);
    cudaStream_t stream = nullptr;
    EXPECT_EQ(fake_gpu::found<cudaError_t(cudaStream_t*, unsigned)>("cudaStreamCreateWithFlags")(&stream,
                                                                                                 cudaStreamNonBlocking),
              cudaSuccess);
    return stream;
  }
  /// A stream that LibTorch has not made has its address as its number.
  static c10::Stream named(at::Device device, cudaStream_t stream) {
    return c10::Stream(c10::Stream::UNSAFE, device, reinterpret_cast<std::intptr_t>(stream));
  }

  cudaStream_t handle_;
  c10::Stream stream_;
};

class SessionOrderTest : public fake_gpu::OrderTest {
 protected:
  std::unique_ptr<Session> opened() const {
    return std::make_unique<Session>(world_.handle(), small_settings({"run.device=cuda", "run.tf32=none"}));
  }
  SampleTensors of_step(std::int64_t step) const { return samples(100 * step + 8 * world_.rank(), 8); }
  SampleTensors on_gpu(SampleTensors given) const {
    for (auto& [name, tensor] : given) tensor = tensor.to(device());
    return given;
  }
  at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) const {
    return at::empty(sizes, at::TensorOptions(type).device(device()));
  }
  static void expect_equal_on_host(const at::Tensor& pinned, const at::Tensor& expected) {
    access_on_host(pinned.const_data_ptr(), pinned.nbytes(), false);
    testing::expect_same_bits(pinned, expected);
  }
};

TEST_F(SessionOrderTest, AStepIsBetweenTheWorkBeforeAndBehindIt) {
  const auto host = opened();
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  SampleTensors arrays;
  stream.run([&] { arrays = {{"input", empty({8, 3})}, {"target", empty({8, 2})}}; });
  for (std::int64_t step = 0; step < 3; ++step) {
    const SampleTensors given = of_step(step);
    const at::Tensor input = given[0].second.pin_memory();
    const at::Tensor target = given[1].second.pin_memory();
    stream.run([&] {
      delay(device());
      arrays[0].second.copy_(input, /*non_blocking=*/true);
      arrays[1].second.copy_(target, /*non_blocking=*/true);
    });
    const double loss = session->train(arrays);
    stream.run([&] {
      for (const auto& [name, array] : arrays) array.zero_();
    });
    EXPECT_EQ(loss, host->train(given)) << step;
  }
}

TEST_F(SessionOrderTest, APredictionIsBetweenTheWorkBeforeAndBehindIt) {
  const auto session = opened();
  const SampleTensors given = {samples(7, 6)[0]};
  const at::Tensor expected = session->predict(given)[0].second.cpu();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  const at::Tensor here = given[0].second.pin_memory();
  const at::Tensor before = at::empty({6, 2}).pin_memory();
  const at::Tensor after = at::empty({6, 2}).pin_memory();
  at::Tensor input;
  at::Tensor output;
  stream.run([&] {
    input = empty({6, 3});
    output = empty({6, 2}).fill_(5);
    delay(device());
    input.copy_(here, /*non_blocking=*/true);
    before.copy_(output, /*non_blocking=*/true);
  });
  session->predict_into({{"input", input}}, {{"output", output}});
  stream.run([&] {
    after.copy_(output, /*non_blocking=*/true);
    input.zero_();
    output.zero_();
  });
  stream.synchronize();
  expect_equal_on_host(before, at::full({6, 2}, 5.0F));
  expect_equal_on_host(after, expected);
}

TEST_F(SessionOrderTest, WithoutAStreamOfItsOwnAProgramHasThatOfTheThread) {
  const auto session = opened();
  const ProgramStream stream(device());
  const SampleTensors given = {samples(7, 6)[0]};
  const at::Tensor here = given[0].second.pin_memory();
  const at::Tensor expected = session->predict(given)[0].second.cpu();
  stream.run([&] {
    const at::Tensor input = empty({6, 3});
    delay(device());
    input.copy_(here, /*non_blocking=*/true);
    testing::expect_same_bits(session->predict({{"input", input}})[0].second.cpu(), expected);
  });
  session->set_stream(stream.handle());
  session->set_stream(nullptr);
  testing::expect_same_bits(session->predict(given)[0].second.cpu(), expected);
}

// The work before the call reads what a prediction of host memory is written to.
TEST_F(SessionOrderTest, AnOutputAloneIsOrdered) {
  const auto session = opened();
  const SampleTensors given = {samples(7, 6)[0]};
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  const at::Tensor before = at::empty({6, 2}).pin_memory();
  const at::Tensor output = stream.run([&] { return empty({6, 2}).fill_(5); });
  stream.run([&] {
    delay(device());
    before.copy_(output, /*non_blocking=*/true);
  });
  session->predict_into(given, {{"output", output}});
  stream.synchronize();
  expect_equal_on_host(before, at::full({6, 2}, 5.0F));
}

// The host does not wait for the prediction, but for the copy of its samples.
TEST_F(SessionOrderTest, PageLockedSamplesCanBeChangedAfterAPrediction) {
  const auto session = opened();
  const at::Tensor input = samples(7, 6)[0].second.pin_memory();
  const at::Tensor output = empty({6, 2});
  session->predict_into({{"input", input}}, {{"output", output}});
  access_on_host(input.const_data_ptr(), input.nbytes(), /*is_write=*/true);
}

TEST_F(SessionOrderTest, ParametersAreBetweenTheWorkBeforeAndBehindThem) {
  const auto session = opened();
  const std::string name = session->parameter_names().front();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  at::Tensor values;
  stream.run([&] {
    values = empty(session->parameter(name).sizes());
    delay(device());
    values.fill_(3);
  });
  session->set_parameter(name, values);
  stream.run([&] { values.fill_(4); });
  session->read_parameter(name, values);
  const at::Tensor doubled = stream.run([&] { return values * 2; });
  const at::Tensor copy = session->parameter(name);
  const at::Tensor sum = stream.run([&] { return doubled + copy; });
  EXPECT_EQ(stream.run([&] { return sum.min().item<float>(); }), 9);
  EXPECT_EQ(stream.run([&] { return sum.max().item<float>(); }), 9);
}

TEST_F(SessionOrderTest, APushIsBetweenTheWorkBeforeAndBehindIt) {
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  const SampleTensors given = on_gpu(of_step(0));
  const SampleTensors arrays = stream.run([&] {
    delay(device());
    return SampleTensors{{"input", given[0].second.clone()}, {"target", given[1].second.clone()}};
  });
  session->push(arrays);
  EXPECT_EQ(session->buffer_size(), 8);
}

TEST_F(SessionOrderTest, AReturnedPredictionBelongsToTheStream) {
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  const SampleTensors given = {samples(7, 6)[0]};
  const at::Tensor on_host = at::empty({6, 2});
  session->predict_into(given, {{"output", on_host}});
  const at::Tensor predicted = session->predict(given)[0].second;
  testing::expect_same_bits(stream.run([&] { return predicted.cpu(); }), on_host);
}

// The calls have samples in host memory, so that the session does not follow the stream.
TEST_F(SessionOrderTest, MemoryOfAPredictionIsNotReusedWhileTheStreamReadsIt) {
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  std::vector<at::Tensor> kept;
  for (std::int64_t round = 0; round < 4; ++round) {
    const at::Tensor output = session->predict({samples(round, 6)[0]})[0].second;
    stream.run([&] {
      delay(device());
      kept.push_back(output.clone());
    });
  }
  for (std::int64_t round = 0; round < 4; ++round) {
    const at::Tensor on_host = at::empty({6, 2});
    session->predict_into({samples(round, 6)[0]}, {{"output", on_host}});
    testing::expect_same_bits(stream.run([&] { return kept[static_cast<std::size_t>(round)].cpu(); }), on_host);
  }
}

// The memory belongs to a third stream, which follows nobody. Integers are converted at the beginning of the call.
TEST_F(SessionOrderTest, MemoryOfSamplesIsNotReusedWhileTheSessionReadsIt) {
  const auto session = opened();
  const ProgramStream stream(device());
  const ProgramStream third(device());
  session->set_stream(stream.handle());
  const at::Tensor output = stream.run([&] { return empty({512, 2}); });
  for (int round = 0; round < 4; ++round) {
    c10::Event written(at::kCUDA);
    const at::Tensor input = third.run([&] { return empty({512, 3}, at::kInt).fill_(round); });
    written.record(third.torch());
    written.block(stream.torch());
    stream.run([&] { delay(device()); });
    session->predict_into({{"input", input}}, {{"output", output}});
  }
  EXPECT_TRUE(stream.run([&] { return at::isfinite(output).all().item<bool>(); }));
}

// Work on another stream would hold up a call that waits for the device.
TEST_F(SessionOrderTest, NoCallWaitsForTheDevice) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  const SampleTensors arrays = stream.run([&] { return on_gpu(of_step(0)); });
  const at::Tensor output = stream.run([&] { return empty({8, 2}); });
  const at::Tensor on_host = at::empty({8, 2});
  const auto call_all = [&] {
    session->push(arrays);
    session->train(arrays);
    session->train_buffer(1);
    session->predict_into({arrays[0]}, {{"output", output}});
    session->predict_into({arrays[0]}, {{"output", on_host}});
    session->set_parameter("hidden0.bias", stream.run([&] { return empty({5}).fill_(1); }));
  };
  call_all();
  Busy busy(device());
  call_all();
  busy.end();
  EXPECT_EQ(session->step(), 4);
}

TEST_F(SessionOrderTest, ArraysOfTheHostDoNotWaitForTheStream) {
  if (is_eager()) GTEST_SKIP() << "nothing is under way";
  const auto session = opened();
  const ProgramStream stream(device());
  session->set_stream(stream.handle());
  for (const std::int64_t step : {0, 1}) session->train(of_step(step));  // memory of buckets is released in the second
  const at::Tensor output = at::empty({8, 2});
  const auto busy = stream.run([&] { return std::make_unique<Busy>(device()); });
  session->train(of_step(2));
  session->predict_into({of_step(2)[0]}, {{"output", output}});
  busy->end();
  EXPECT_EQ(session->step(), 3);
}

TEST_F(SessionOrderTest, AStreamOfAnotherGpuIsRefused) {
  const auto session = opened();
  const int own = session->gpu()->index();
  if (world_.size() == 1) GTEST_SKIP() << "needs two GPUs";
  if (own == 0) return;
  const ProgramStream stream(at::Device(at::kCUDA, 0));
  const std::string sentence = testing::sentence_of<ConfigError>([&] { session->set_stream(stream.handle()); });
  EXPECT_NE(sentence.find("the stream cannot be used on GPU " + std::to_string(own)), std::string::npos) << sentence;
}

}  // namespace session_order_test
}  // namespace lockstep
