// SPDX-License-Identifier: BSD-3-Clause
// Sessions on a GPU (lockstep/session.hpp), with samples and results in its memory and in that of the host.
#include <lockstep/core/error.hpp>
#include <lockstep/session.hpp>

#include <c10/core/impl/VirtualGuardImpl.h>

#include <functional>

#include "embed/c_arrays.hpp"
#include "fake_functions.hpp"
#include "gpu_test.hpp"
#include "multirank/embed/sessions.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace gpu_session_test {

using fake_gpu::cost_of;
using fake_gpu::Counters;
using testing::samples;
using testing::sentence_of;
using testing::SessionSettings;
using testing::small_settings;

class GpuSessionTest : public GpuTest {
 protected:
  std::unique_ptr<Session> opened(SessionSettings more = {}) const {
    more.insert(more.end(), {"run.device=cuda", "run.tf32=none"});
    return std::make_unique<Session>(world_.handle(), small_settings(more));
  }
  at::Device device() const { return device_->torch(); }
  SampleTensors of_step(std::int64_t step) const { return samples(100 * step + 8 * world_.rank(), 8); }
  SampleTensors on_gpu(SampleTensors given) const {
    for (auto& [name, tensor] : given) tensor = tensor.to(device());
    return given;
  }
  static at::Tensor parameters_of(const Session& session) { return testing::parameters_of(session).cpu(); }
};

/// The same values in other memory.
at::Tensor with_gaps(const at::Tensor& values) {
  const at::Tensor wide = at::full({values.size(1), 3 * values.size(0)}, 99, values.options());
  const at::Tensor part = wide.slice(1, 1, 3 * values.size(0), 3).t();
  part.copy_(values);
  return part;
}

TEST_F(GpuSessionTest, StepsOnArraysOfTheGpuHaveTheBitsOfThoseOfTheHost) {
  const auto host = opened();
  const auto gpu = opened();
  const auto mixed = opened();
  const auto others = opened();
  for (std::int64_t step = 0; step < 4; ++step) {
    const SampleTensors given = of_step(step);
    const SampleTensors there = on_gpu(given);
    const double loss = host->train(given);
    EXPECT_EQ(gpu->train(there), loss);
    EXPECT_EQ(mixed->train({given[0], there[1]}), loss);
    EXPECT_EQ(others->train({{"input", with_gaps(there[0].second)}, {"target", there[1].second.to(at::kDouble)}}),
              loss);
  }
  const at::Tensor expected = parameters_of(*host);
  for (const Session* each : {gpu.get(), mixed.get(), others.get()}) {
    testing::expect_same_bits(parameters_of(*each), expected);
  }
}

TEST_F(GpuSessionTest, TheCpuComputesTheSame) {
  Session cpu(world_.handle(), small_settings({"run.device=cpu"}));
  const auto gpu = opened();
  for (std::int64_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(gpu->train(on_gpu(of_step(step))), cpu.train(of_step(step)), 1e-6);
  }
  EXPECT_TRUE(at::allclose(parameters_of(*gpu), parameters_of(cpu), 1e-5, 1e-6));
}

TEST_F(GpuSessionTest, PredictionsGoToAnyMemory) {
  const auto session = opened();
  const SampleTensors here = {samples(7, 6)[0]};
  const SampleTensors there = on_gpu(here);
  const at::Tensor expected = session->predict(here)[0].second;
  EXPECT_EQ(expected.device(), device());
  testing::expect_same_bits(session->predict(there)[0].second, expected);
  for (const SampleTensors& inputs : {here, there, {{"input", here[0].second.pin_memory()}}}) {
    const at::Tensor on_host = at::zeros({6, 2});
    const at::Tensor on_device = at::zeros({6, 2}, at::TensorOptions(device()));
    const at::Tensor other = with_gaps(at::zeros({6, 2}, at::TensorOptions(at::kDouble).device(device())));
    session->predict_into(inputs, {{"output", on_host}, {"values", on_device}});
    session->predict_into(inputs, {{"output", other}});
    testing::expect_same_bits(on_host, expected.cpu());
    testing::expect_same_bits(on_device, expected);
    testing::expect_same_bits(other.to(at::kFloat), expected);
  }
}

TEST_F(GpuSessionTest, ParametersGoToAnyMemoryAndComeFromIt) {
  const auto session = opened();
  const std::string name = session->parameter_names().front();
  const at::Tensor before = session->parameter(name).cpu();
  const at::Tensor there = with_gaps(at::zeros(before.sizes(), at::TensorOptions(at::kDouble).device(device())));
  session->read_parameter(name, there);
  testing::expect_same_bits(there.cpu().to(at::kFloat), before);
  session->set_parameter(name, world_.is_root() ? there + 1 : before);  // the values of the first rank count
  testing::expect_same_bits(session->parameter(name).cpu(), before + 1);
  const at::Tensor here = at::zeros_like(before);
  session->set_parameter(name, before);
  session->read_parameter(name, here);
  testing::expect_same_bits(here, before);
}

TEST_F(GpuSessionTest, BuffersAndStatisticsTakeArraysOfTheGpu) {
  const SessionSettings buffered = {"buffer.capacity=20", "buffer.statistics=running",
                                    "train.global_batch_size=" + std::to_string(4 * world_.size())};
  const auto host = opened(buffered);
  const auto gpu = opened(buffered);
  for (std::int64_t step = 0; step < 3; ++step) {
    host->push(of_step(step));
    gpu->push(on_gpu(of_step(step)));
    EXPECT_NEAR(gpu->train_buffer(2), host->train_buffer(2), 1e-6);
    EXPECT_NEAR(gpu->train(on_gpu(of_step(step))), host->train(of_step(step)), 1e-6);
  }
  EXPECT_EQ(gpu->buffer_size(), 20);
}

TEST_F(GpuSessionTest, AProducerSendsArraysOfTheGpuAndPredictsThere) {
  if (world_.size() == 1) GTEST_SKIP() << "needs several ranks";
  const int trainers = world_.size() - 1;
  const bool is_producer = world_.rank() == trainers;
  SessionSettings settings = {"buffer.capacity=20", "buffer.min=8",
                              "train.global_batch_size=" + std::to_string(4 * trainers)};
  if (is_producer) settings.emplace_back("embed.role=producer");
  const auto session = opened(settings);
  if (!is_producer) {
    const auto train = [&] {
      while (session->step() < 100'000) session->train_buffer(1);
    };
    EXPECT_THROW(train(), CommError);  // the producer has ended
    EXPECT_GT(session->step(), 0);
    return session->close();
  }
  const at::Device own(at::kCUDA, static_cast<at::DeviceIndex>(session->gpu()->index()));
  SampleTensors given = of_step(0);
  for (auto& [name, tensor] : given) tensor = tensor.to(own);
  session->push(given);
  session->update();
  const at::Tensor predicted = session->predict({given[0]})[0].second;
  EXPECT_EQ(predicted.device(), own);
  EXPECT_TRUE(at::isfinite(predicted).all().item<bool>());
  session->close();
}

TEST_F(GpuSessionTest, StepsThatAreCapturedReadTheArraysOfEachStep) {
  const auto eager = opened();
  const auto captured = opened({"run.cuda_graphs=true"});
  for (std::int64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(captured->train(on_gpu(of_step(step))), eager->train(of_step(step))) << step;
  }
  testing::expect_same_bits(parameters_of(*captured), parameters_of(*eager));
}

TEST_F(GpuSessionTest, AWrongClassIsFoundBeforeTheGpuUsesIt) {
  Session session(world_.handle(), {"model.name=mlp", "data.kind=classification", "data.classes=3",
                                    "data.input_shape=3", "run.threads=1", "run.device=cuda"});
  const at::Tensor input = samples(0, 2)[0].second.to(device());
  const at::Tensor classes = at::tensor({2, 3}, at::TensorOptions(at::kLong)).to(device());
  const std::string sentence = sentence_of<DataError>([&] { session.train({{"input", input}, {"target", classes}}); });
  EXPECT_NE(sentence.find("sample 1: the target 3 is not one of the 3 classes"), std::string::npos) << sentence;
  EXPECT_GT(session.train({{"input", input}, {"target", classes - 1}}), 0);
}

TEST_F(GpuSessionTest, DeviceAndStreamOfTheThreadStayAsTheyAre) {
  const c10::impl::VirtualGuardImpl guard(at::kCUDA);
  guard.setDevice({at::kCUDA, 0});
  const c10::Stream stream = guard.getStream(device());
  const auto expect_unchanged = [&] {
    EXPECT_EQ(guard.getDevice().index(), 0);
    EXPECT_EQ(guard.getStream(device()), stream);
  };
  {
    const auto session = opened();
    expect_unchanged();
    session->train([&] {
      EXPECT_EQ(guard.getStream(device()), stream);
      return on_gpu(of_step(0));
    });
    expect_unchanged();
    session->predict({samples(0, 2)[0]});
    expect_unchanged();
    session->close();
    expect_unchanged();
  }
  expect_unchanged();
  guard.setDevice(device());
}

TEST_F(GpuSessionTest, TheHostDoesNotWaitForArraysOfTheGpu) {
  if (!fake_gpu::is_here()) GTEST_SKIP() << "a GPU does not count";
  const auto waits = [](const Counters& cost) { return cost.synchronizations + cost.late_waits; };
  const auto session = opened();
  const SampleTensors here = of_step(0);
  const SampleTensors there = on_gpu(here);
  const at::Tensor output = at::zeros({8, 2}, at::TensorOptions(device()));
  const at::Tensor on_host = at::zeros({8, 2});
  for (int i = 0; i < 4; ++i) {
    session->train(here);
    session->train(there);
    session->predict_into({there[0]}, {{"output", output}});
  }
  const Counters of_host = cost_of([&] { session->train(here); });
  const Counters of_gpu = cost_of([&] { session->train(there); });
  EXPECT_LE(waits(of_gpu), waits(of_host));
  EXPECT_EQ(of_host.pageable_copies - of_gpu.pageable_copies, 2);
  EXPECT_EQ(of_gpu.host_reads, of_host.host_reads);
  const Counters predicted = cost_of([&] { session->predict_into({there[0]}, {{"output", output}}); });
  EXPECT_EQ(waits(predicted), 0);
  EXPECT_EQ(predicted.pageable_copies + predicted.host_reads, 0);
  EXPECT_EQ(predicted.device_allocations + predicted.host_allocations, 0);
  const Counters to_host = cost_of([&] { session->predict_into({there[0]}, {{"output", on_host}}); });
  EXPECT_EQ(waits(to_host), 1);
  EXPECT_EQ(to_host.host_reads, 1);
}

TEST_F(GpuSessionTest, TensorsOfOtherDevicesAreRefused) {
  Session cpu(world_.handle(), small_settings({"run.device=cpu"}));
  const std::string sentence = sentence_of<DataError>([&] { cpu.train(on_gpu(of_step(0))); });
  EXPECT_NE(sentence.find("'input' is on cuda:"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(", but the run computes on cpu"), std::string::npos) << sentence;
  EXPECT_EQ(cpu.gpu(), nullptr);
  const auto session = opened();
  EXPECT_EQ(session->gpu()->index(), device_->gpu()->index());
  if (device().index() != 0) {
    const at::Tensor elsewhere = at::zeros({2, 3}, at::TensorOptions(at::Device(at::kCUDA, 0)));
    EXPECT_EQ(sentence_of<DataError>([&] {
                session->predict({{"input", elsewhere}});
              }),
              "'input' is on cuda:0, but the run computes on " + device().str());
  }
  EXPECT_EQ(sentence_of<ConfigError>([&] { cpu.set_stream(&cpu); }),
            "a stream needs a run on a GPU, but this run computes on the CPU; set run.device=cuda");
  EXPECT_NO_THROW(cpu.set_stream(nullptr));
}

TEST_F(GpuSessionTest, ArraysThatAreNotWhereTheySayAreRefused) {
  const mpi::Gpu& gpu = *device_->gpu();
  const std::string number = std::to_string(gpu.index());
  const std::int64_t sizes[] = {2, 3};
  const at::Tensor there = at::zeros({2, 3}, at::TensorOptions(device()));
  const at::Tensor here = at::zeros({2, 3});
  const at::Tensor pinned = here.pin_memory();
  const auto array_over = [&](const at::Tensor& tensor, int memory) {
    lockstep_array array = {};
    array.name = "u";
    array.type = LOCKSTEP_FLOAT32;
    array.rank = 2;
    std::copy_n(sizes, 2, array.sizes);
    array.strides[0] = 12;
    array.strides[1] = 4;
    array.data = tensor.mutable_data_ptr();
    array.device = memory;
    return array;
  };
  const auto sentence = [&](const lockstep_array& array) {
    return sentence_of<DataError>([&] { embed::tensor_of(array, &gpu); });
  };
  EXPECT_EQ(embed::tensor_of(array_over(there, LOCKSTEP_GPU), &gpu).const_data_ptr(), there.const_data_ptr());
  EXPECT_EQ(embed::tensor_of(array_over(pinned, LOCKSTEP_HOST), &gpu).const_data_ptr(), pinned.const_data_ptr());
  const std::string on_host = "'u' is in host memory, but its device is LOCKSTEP_GPU; set it to LOCKSTEP_HOST";
  EXPECT_EQ(sentence(array_over(here, LOCKSTEP_GPU)), on_host);
  EXPECT_EQ(sentence(array_over(pinned, LOCKSTEP_GPU)), on_host);
  EXPECT_EQ(sentence(array_over(there, LOCKSTEP_HOST)),
            "'u' is in the memory of GPU " + number + ", but its device is LOCKSTEP_HOST; set it to LOCKSTEP_GPU");
  lockstep_array reversed = array_over(there, LOCKSTEP_GPU);
  reversed.strides[1] = -4;
  EXPECT_EQ(
      sentence(reversed),
      "'u' has strides, or an address, that are negative or no multiple of its elements, which is possible in host "
      "memory only; copy it to an array without gaps");
  lockstep_array packed = array_over(there, LOCKSTEP_GPU);
  packed.strides[0] = 13;
  EXPECT_EQ(sentence(packed), sentence(reversed));
  if (device().index() == 0) return;
  const at::Tensor elsewhere = at::zeros({2, 3}, at::TensorOptions(at::Device(at::kCUDA, 0)));
  EXPECT_EQ(sentence(array_over(elsewhere, LOCKSTEP_GPU)),
            "'u' is in the memory of GPU 0, but the run computes on GPU " + number);
}

}  // namespace gpu_session_test
}  // namespace lockstep
