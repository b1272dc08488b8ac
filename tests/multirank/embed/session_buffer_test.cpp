// SPDX-License-Identifier: BSD-3-Clause
// Online training from buffers.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <algorithm>
#include <cmath>

#include "sessions.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace session_buffer_test {

using testing::parameters_of;
using testing::samples;
using testing::small_settings;

constexpr std::int64_t kLanes = 12;

testing::SessionSettings lanes_settings(const testing::SessionSettings& more = {}) {
  testing::SessionSettings settings = small_settings({"train.lanes=12", "train.global_batch_size=24",
                                                      "buffer.capacity=10", "optim.name=adamw", "train.clip_norm=0.5"});
  settings.insert(settings.end(), more.begin(), more.end());
  return settings;
}

/// Pushes the samples of `step` for each lane of this rank: different numbers of them.
void push_step(Session& session, std::int64_t step) {
  const auto [first, count] = session.lanes();
  for (std::int64_t lane = first; lane < first + count; ++lane) {
    session.push(samples(1000 * lane + 10 * step, 1 + (lane + step) % 3), lane);
  }
}

at::Tensor trained_online(Session& session, std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = begin; step < end; ++step) {
    push_step(session, step);
    session.train_buffer(2);
  }
  return parameters_of(session);
}

TEST(SessionBufferTest, LanesGiveTheSameBitsOnAnyNumberOfRanks) {
  for (const char* const keep : {"buffer.keep=ring", "buffer.keep=reservoir"}) {
    Session together(MPI_COMM_WORLD, lanes_settings({keep}));
    Session alone(MPI_COMM_NULL, lanes_settings({keep}));
    EXPECT_EQ(alone.lanes(), std::pair(std::int64_t{0}, kLanes));
    testing::expect_same_bits(trained_online(together, 0, 10), trained_online(alone, 0, 10));
    EXPECT_EQ(alone.buffer_size(), kLanes * 10);
  }
}

TEST(SessionBufferTest, EmptyBuffersAddNothing) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session together(MPI_COMM_WORLD, lanes_settings());
  Session alone(MPI_COMM_NULL, lanes_settings());
  for (Session* const session : {&together, &alone}) {
    const auto [first, count] = session->lanes();
    if (first <= 11 && first + count > 11) session->push(samples(0, 5), 11);
    EXPECT_GT(session->train_buffer(3), 0);
  }
  testing::expect_same_bits(parameters_of(together), parameters_of(alone));
}

TEST(SessionBufferTest, BuffersAreResumedBitForBit) {
  const mpi::Communicator world = mpi::Communicator::world();
  for (const bool has_lanes : {true, false}) {
    const testing::SharedFolder folder(world);
    testing::SessionSettings settings = has_lanes ? lanes_settings() : small_settings({"buffer.capacity=10"});
    settings.insert(settings.end(), {"run.dir=" + folder.path("run"), "ckpt.buffer=true", "buffer.keep=reservoir"});
    const auto run = [&](Session& session, std::int64_t begin, std::int64_t end) {
      if (has_lanes) return trained_online(session, begin, end);
      for (std::int64_t step = begin; step < end; ++step) {
        session.push(samples(100 * world.rank() + 10 * step, 3 + world.rank()));
        session.train_buffer(1);
      }
      return parameters_of(session);
    };
    Session session(MPI_COMM_WORLD, settings);
    run(session, 0, 5);
    session.save();
    const at::Tensor expected = run(session, 5, 9);
    const std::string at_save = std::to_string(has_lanes ? 10 : 5);
    Session resumed(MPI_COMM_WORLD, [&] {
      testing::SessionSettings again = has_lanes ? lanes_settings() : small_settings({"buffer.capacity=10"});
      again.insert(again.end(),
                   {"run.dir=" + folder.path("other"), "ckpt.buffer=true", "buffer.keep=reservoir",
                    "resume=" + folder.path("run/ckpt/step-0000000000" + std::string(has_lanes ? "10" : "05"))});
      return again;
    }());
    EXPECT_EQ(std::to_string(resumed.step()), at_save);
    testing::expect_same_bits(run(resumed, 5, 9), expected);
    if (!has_lanes) continue;
    testing::SessionSettings alone = lanes_settings({"ckpt.buffer=true", "buffer.keep=reservoir",
                                                     "run.dir=" + folder.path("alone" + std::to_string(world.rank())),
                                                     "resume=" + folder.path("run/ckpt/step-000000000010")});
    Session other_ranks(MPI_COMM_NULL, alone);
    testing::expect_same_bits(run(other_ranks, 5, 9), expected);
    world.barrier();
  }
}

TEST(SessionBufferTest, BuffersOfRanksAreNotThoseOfAnotherNumberOfRanks) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one number of ranks";
  const testing::SharedFolder folder(world);
  Session session(MPI_COMM_WORLD, small_settings({"run.dir=" + folder.path("run"), "ckpt.buffer=true"}));
  session.push(samples(0, 4));
  session.train_buffer(1);
  const std::string checkpoint = session.save();
  const std::string sentence = testing::sentence_of<CheckpointError>([&] {
    Session alone(MPI_COMM_NULL, small_settings({"run.dir=" + folder.path("alone" + std::to_string(world.rank())),
                                                 "ckpt.buffer=true", "resume=" + checkpoint}));
  });
  EXPECT_NE(sentence.find("there are 1; with train.lanes, buffers belong to lanes instead"), std::string::npos)
      << sentence;
}

/// Samples in units in which numbers are large and differ little.
SampleTensors in_units(std::int64_t begin, std::int64_t count) {
  SampleTensors given = samples(begin, count);
  given[0].second = given[0].second.to(at::kDouble) * at::tensor({3.0, 0.01, 200.0}) + at::tensor({101325.0, 5.0, 0.0});
  given[1].second = given[1].second.to(at::kDouble) * at::tensor({40.0, 1e-4}) + at::tensor({-900.0, 2.0});
  return given;
}

/// Pushes 4 samples per lane.
void push_in_units(Session& session, std::int64_t step) {
  const auto [first, count] = session.lanes();
  for (std::int64_t lane = first; lane < first + count; ++lane) {
    session.push(in_units(1000 * lane + 10 * step, 4), lane);
  }
}

at::Tensor all_in_units(std::size_t value, std::int64_t steps) {
  std::vector<at::Tensor> parts;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    for (std::int64_t step = 0; step < steps; ++step)
      parts.push_back(in_units(1000 * lane + 10 * step, 4)[value].second);
  }
  return at::cat(parts);
}

/// The buffer of the model with this end of its name.
at::Tensor statistic(const Session& session, const std::string& end) {
  for (const std::string& name : session.parameter_names()) {
    if (name.ends_with(end)) return session.parameter(name).to(at::kDouble);
  }
  ADD_FAILURE() << "there is no " << end;
  return at::zeros({1});
}

void expect_statistics(const Session& session, std::int64_t steps) {
  const at::Tensor inputs = all_in_units(0, steps);
  const at::Tensor targets = all_in_units(1, steps);
  EXPECT_TRUE(at::allclose(statistic(session, "input_shift"), inputs.mean(0), 1e-6));
  EXPECT_TRUE(at::allclose(statistic(session, "input_scale"), inputs.std(0, /*unbiased=*/false), 1e-6));
  EXPECT_TRUE(at::allclose(statistic(session, "target_shift"), targets.mean(0), 1e-6));
  EXPECT_TRUE(at::allclose(statistic(session, "target_scale"), targets.std(0, /*unbiased=*/false), 1e-6));
}

TEST(SessionBufferTest, StatisticsAreThoseOfAllSamplesOnAnyNumberOfRanks) {
  Session together(MPI_COMM_WORLD, lanes_settings({"buffer.statistics=running"}));
  Session alone(MPI_COMM_NULL, lanes_settings({"buffer.statistics=running"}));
  for (Session* const session : {&together, &alone}) {
    for (std::int64_t step = 0; step < 6; ++step) {
      push_in_units(*session, step);
      session->train_buffer(1);
      expect_statistics(*session, step + 1);
    }
  }
  testing::expect_same_bits(parameters_of(together), parameters_of(alone));
  // An untrained model predicts the mean, give or take some deviations.
  const at::Tensor values = alone.predict({in_units(0, 8)[0]})[0].second.to(at::kDouble);
  EXPECT_LT(
      (values - statistic(alone, "target_shift")).div(statistic(alone, "target_scale")).abs().max().item<double>(), 4);
}

TEST(SessionBufferTest, StatisticsOfTheFirstSamplesStayAsTheyAre) {
  Session session(MPI_COMM_WORLD, lanes_settings({"buffer.statistics=first:96"}));  // two steps of 12 x 4
  for (std::int64_t step = 0; step < 5; ++step) {
    push_in_units(session, step);
    session.train_buffer(1);
    expect_statistics(session, std::min<std::int64_t>(step + 1, 2));
  }
}

TEST(SessionBufferTest, StatisticsAreResumedBitForBit) {
  const mpi::Communicator world = mpi::Communicator::world();
  const testing::SharedFolder folder(world);
  const testing::SessionSettings settings = lanes_settings(
      {"buffer.statistics=running", "ckpt.buffer=true", "run.dir=" + folder.path("run"), "ckpt.keep_last=9"});
  const auto run = [](Session& session, std::int64_t begin, std::int64_t end) {
    for (std::int64_t step = begin; step < end; ++step) {
      push_in_units(session, step);
      session.train_buffer(1);
    }
    return parameters_of(session);
  };
  Session session(MPI_COMM_WORLD, settings);
  run(session, 0, 3);
  session.save();
  const at::Tensor expected = run(session, 3, 6);
  session.resume("3");
  testing::expect_same_bits(run(session, 3, 6), expected);
}

TEST(SessionBufferTest, StatisticsWithoutBuffersAreThoseOfTheTrainedSamples) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings({"buffer.statistics=running"}));
  session.train(in_units(8 * world.rank(), 8));
  const at::Tensor all = in_units(0, 8 * world.size())[0].second;
  EXPECT_TRUE(at::allclose(statistic(session, "input_shift"), all.mean(0), 1e-6));
  EXPECT_NE(testing::sentence_of<ConfigError>([] {
              Session wrong(MPI_COMM_NULL, small_settings({"buffer.statistics=first"}));
            }).find("use none, running or first:1000"),
            std::string::npos);
}

TEST(SessionBufferTest, TooFewSamplesAreRefused) {
  Session session(MPI_COMM_WORLD, small_settings({"buffer.min=1000"}));
  session.push(samples(0, 4));
  const std::string sentence = testing::sentence_of<Error>([&] { session.train_buffer(1); });
  EXPECT_NE(sentence.find("buffer.min"), std::string::npos) << sentence;
  EXPECT_TRUE(std::isnan(session.train_buffer(0)));
}

TEST(SessionBufferTest, OtherFormsThanThoseOfEarlierSamplesAreRefused) {
  Session session(MPI_COMM_NULL, small_settings());
  session.push(samples(0, 2));
  SampleTensors with_mask = samples(0, 2);
  with_mask.emplace_back("mask", at::ones({2, 2}));
  EXPECT_EQ(testing::sentence_of<DataError>([&] { session.push(with_mask); }),
            "earlier samples of the buffer have no 'mask'");
  EXPECT_EQ(testing::sentence_of<DataError>([&] { session.push(samples(0, 2), 0); }),
            "lane 0 does not belong to this rank, which has none, because train.lanes is 0");
  EXPECT_EQ(session.buffer_size(), 2);
}

}  // namespace session_buffer_test
}  // namespace lockstep
