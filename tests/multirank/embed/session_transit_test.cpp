// SPDX-License-Identifier: BSD-3-Clause
// Ranks that only produce samples for ranks that train.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <chrono>
#include <limits>
#include <thread>

#include "sessions.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace session_transit_test {

using testing::parameters_of;
using testing::samples;
using testing::SessionSettings;
using testing::small_settings;

constexpr std::int64_t kLanes = 12;

class TransitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world_.size() == 1) GTEST_SKIP() << "one rank has nobody to send to";
  }

  /// The first half of the ranks trains.
  int trainers() const { return (world_.size() + 1) / 2; }
  int producers() const { return world_.size() - trainers(); }
  bool is_producer() const { return world_.rank() >= trainers(); }
  /// The number of this rank among the producers.
  int number() const { return world_.rank() - trainers(); }

  SessionSettings settings(const SessionSettings& more = {}) const {
    SessionSettings all = small_settings({"train.global_batch_size=24", "optim.name=adamw"});
    all.insert(all.end(), more.begin(), more.end());
    if (is_producer()) all.emplace_back("embed.role=producer");
    return all;
  }

  mpi::Communicator world_ = mpi::Communicator::world();
};

/// Samples [10 * lane, 10 * lane + count) go to a lane.
void push_lane(Session& session, std::int64_t lane, std::int64_t count) {
  session.push(samples(10 * lane, count), lane);
}

TEST_F(TransitTest, WithLanesTheBitsAreThoseOfARunWithoutProducers) {
  const SessionSettings lanes = {"train.lanes=12", "buffer.min=60", "buffer.statistics=running", "buffer.window_mb=1"};
  Session session(MPI_COMM_WORLD, settings(lanes));
  SessionSettings alone_settings = small_settings({"train.global_batch_size=24", "optim.name=adamw"});
  alone_settings.insert(alone_settings.end(), lanes.begin(), lanes.end());
  Session alone(MPI_COMM_NULL, alone_settings);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) push_lane(alone, lane, 5);
  alone.train_buffer(4);
  if (is_producer()) {
    EXPECT_EQ(session.lanes(), std::pair(std::int64_t{0}, kLanes));
    for (std::int64_t lane = number(); lane < kLanes; lane += producers()) push_lane(session, lane, 5);
    world_.barrier();
    session.close();
  } else {
    session.train_buffer(4);  // waits for all 60 samples
    testing::expect_same_bits(parameters_of(session), parameters_of(alone));
    world_.barrier();
    testing::sentence_of<CommError>([&] {
      while (session.open_producers() > 0) session.train_buffer(0);
    });
    session.close();
  }
}

TEST_F(TransitTest, ProducersPredictWithTheWeightsOfTheTrainers) {
  for (const bool has_average : {false, true}) {
    Session session(MPI_COMM_WORLD,
                    settings(has_average ? SessionSettings{"ema.kind=ema", "ema.decay=0.9"} : SessionSettings{}));
    const SampleTensors input = {samples(500, 7)[0]};
    at::Tensor predicted = at::zeros({7, 2});
    if (is_producer()) {
      EXPECT_EQ(session.weights_step(), -1);
      EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.predict(input); }),
                "this rank has no weights yet; call update first");
      session.push(samples(100 * number(), 30));
      world_.barrier();
      session.update();
      EXPECT_EQ(session.weights_step(), 3);
      EXPECT_EQ(session.step(), 3);
      predicted = session.predict(input)[0].second.contiguous();
    } else {
      session.train_buffer(3);
      session.update();
      predicted = session.predict(input)[0].second.contiguous();
      EXPECT_EQ(session.weights_step(), 3);
      world_.barrier();
      while (session.open_producers() > 0) {  // answers the requests
        try {
          session.train_buffer(0);
        } catch (const CommError&) {
        }
      }
    }
    if (is_producer()) session.close();
    at::Tensor of_first = predicted.clone();
    world_.broadcast(std::span(of_first.mutable_data_ptr<float>(), 14));
    testing::expect_same_bits(predicted, of_first);
  }
}

TEST_F(TransitTest, JoinedMaskedAndWeightedSamplesTravelAsTheyAre) {
  const SessionSettings keys = {"data.join_keys=speed,change", "data.mask_key=valid", "data.weight_key=area",
                                "train.lanes=12", "buffer.min=60"};
  const auto push = [](Session& session, std::int64_t lane) {
    const SampleTensors whole = samples(10 * lane, 5);
    session.push({{"speed", whole[0].second.narrow(1, 0, 2)},
                  {"change", whole[0].second.narrow(1, 2, 1)},
                  whole[1],
                  {"valid", at::arange(10).view({5, 2}).remainder(3)},
                  {"area", at::arange(5, at::kDouble) + lane}},
                 lane);
  };
  Session session(MPI_COMM_WORLD, settings(keys));
  SessionSettings alone_settings = small_settings({"train.global_batch_size=24", "optim.name=adamw"});
  alone_settings.insert(alone_settings.end(), keys.begin(), keys.end());
  Session alone(MPI_COMM_NULL, alone_settings);
  for (std::int64_t lane = 0; lane < kLanes; ++lane) push(alone, lane);
  alone.train_buffer(3);
  if (is_producer()) {
    for (std::int64_t lane = number(); lane < kLanes; lane += producers()) push(session, lane);
  } else {
    session.train_buffer(3);
    testing::expect_same_bits(parameters_of(session), parameters_of(alone));
  }
  world_.barrier();
}

TEST_F(TransitTest, AFullWindowDropsAndCounts) {
  constexpr std::int64_t kPushed = 60000;  // 20 bytes each
  constexpr std::int64_t kFit = 50000;     // the most that 1 MB has room for
  Session session(MPI_COMM_WORLD, settings({"buffer.full=drop", "buffer.window_mb=1", "buffer.capacity=60000"}));
  std::int64_t dropped = 0;
  if (is_producer()) {
    session.push(samples(0, kPushed));  // nobody receives
    dropped = session.dropped();
    EXPECT_GE(dropped, kPushed - kFit);
    EXPECT_LT(dropped, kPushed - kFit / 2);
  }
  const std::int64_t all_dropped = world_.all_reduce(dropped);
  if (is_producer()) {
    session.close();
    return;
  }
  const std::string sentence = testing::sentence_of<CommError>([&] {
    for (;;) session.train_buffer(1);
  });
  EXPECT_EQ(sentence, "all producers have closed the run or are gone; they have sent " +
                          std::to_string(kPushed * producers() - all_dropped) + " samples and dropped " +
                          std::to_string(all_dropped) + "; further calls train on the samples that are in the buffers");
  EXPECT_EQ(session.dropped(), all_dropped);
  EXPECT_EQ(session.open_producers(), 0);
  const std::int64_t step = session.step();
  session.train_buffer(2);
  EXPECT_EQ(session.step(), step + 2);
}

TEST_F(TransitTest, AFullWindowWaits) {
  Session session(MPI_COMM_WORLD, settings({"buffer.window_mb=1", "buffer.capacity=200000"}));
  if (is_producer()) {
    const auto start = std::chrono::steady_clock::now();
    session.push(samples(0, 60000));
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(150));
    EXPECT_EQ(session.dropped(), 0);
    session.close();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::string sentence = testing::sentence_of<CommError>([&] {
      for (;;) session.train_buffer(1);
    });
    EXPECT_NE(sentence.find("sent " + std::to_string(60000 * producers()) + " samples and dropped 0;"),
              std::string::npos)
        << sentence;
    EXPECT_EQ(world_.size() == 2 ? session.buffer_size() : 60000, 60000);
  }
}

TEST_F(TransitTest, ClosingWaitsUntilAllSamplesHaveArrived) {
  Session session(MPI_COMM_WORLD, settings());
  world_.barrier();
  if (is_producer()) {
    session.push(samples(0, 5));
    const auto start = std::chrono::steady_clock::now();
    session.close();
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(150));
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    testing::sentence_of<CommError>([&] {
      for (;;) session.train_buffer(1);
    });
  }
}

TEST_F(TransitTest, TrainersThatCloseEarlyAreReported) {
  Session session(MPI_COMM_WORLD, settings());
  if (!is_producer()) {
    session.train_buffer(2);
    session.close();
    world_.barrier();
    return;
  }
  session.push(samples(0, 30));
  world_.barrier();
  for (int i = 0; i < 2; ++i) {
    const std::string sentence = testing::sentence_of<CommError>([&] { session.push(samples(0, 30)); });
    EXPECT_NE(sentence.find(", which trained, has closed the run after step 2"), std::string::npos) << sentence;
  }
  EXPECT_NE(testing::sentence_of<CommError>([&] { session.update(); }).find("which trained"), std::string::npos);
  session.close();
}

TEST_F(TransitTest, AFailureOfTheTrainersIsReported) {
  Session session(MPI_COMM_WORLD, settings({"train.nonfinite=stop"}));
  if (is_producer()) {
    SampleTensors wrong = samples(0, 30);
    wrong[0].second.fill_(std::numeric_limits<float>::quiet_NaN());
    session.push(wrong);
    world_.barrier();
    const std::string sentence = testing::sentence_of<CommError>([&] { session.push(samples(0, 30)); });
    EXPECT_NE(sentence.find(", which trained, has failed: "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("not finite"), std::string::npos) << sentence;
  } else {
    testing::sentence_of<NumericError>([&] { session.train_buffer(1); });
    world_.barrier();
  }
  session.close();
}

TEST_F(TransitTest, WrongSamplesAreRefusedWhereTheyAreMade) {
  Session session(MPI_COMM_WORLD, settings({"comm.timeout_s=2"}));
  if (!is_producer()) {
    const std::string late = testing::sentence_of<CommError>([&] { session.train_buffer(1); });
    EXPECT_NE(late.find("producers have sent too few samples for 2.0 s"), std::string::npos) << late;
    world_.barrier();
    // The first producer of each trainer sends a mask after samples without one.
    const std::string sentence = testing::sentence_of<DataError>([&] {
      for (;;) session.train_buffer(1);
    });
    EXPECT_NE(sentence.find("samples of the producer on rank "), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("earlier samples of the buffer have no 'mask'"), std::string::npos) << sentence;
    world_.barrier();
    return;
  }
  EXPECT_EQ(testing::sentence_of<DataError>([&] {
              session.push({{"input", at::zeros({4, 2})}, {"target", at::zeros({4, 2})}});
            }),
            "a sample of 'input' has the shape [2], but data.input_shape says [3]");
  EXPECT_EQ(testing::sentence_of<DataError>([&] { session.push(samples(0, 2), 0); }),
            "there is no lane 0, because train.lanes is 0");
  const std::string refused =
      "this rank is a producer (embed.role=producer), which can only push, update, predict and close";
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.train(samples(0, 2)); }), refused);
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.save(); }), refused);
  world_.barrier();
  SampleTensors masked = samples(0, 8);
  session.push(masked);
  masked.emplace_back("mask", at::ones({8, 2}));
  session.push(masked);
  world_.barrier();
}

TEST_F(TransitTest, SettingsAndRolesAreAgreedOn) {
  EXPECT_EQ(
      testing::sentence_of<Error>([&] { Session session(MPI_COMM_WORLD, small_settings({"embed.role=producer"})); }),
      "every rank is a producer (embed.role=producer), so that none trains; leave embed.role out on the ranks "
      "that train");
  const std::string last = std::to_string(world_.size() - 1);
  EXPECT_EQ(testing::sentence_of<Error>([&] {
              const bool is_last = world_.rank() == world_.size() - 1;
              Session session(MPI_COMM_WORLD, settings({is_last ? "optim.lr=0.2" : "optim.lr=0.1"}));
            }),
            "rank 0 and rank " + last + " have different settings; with producers, only embed.role may differ");
  EXPECT_NE(testing::sentence_of<Error>([&] {
              Session session(MPI_COMM_WORLD, small_settings({"embed.role=both"}));
            }).find("neither trainer nor producer"),
            std::string::npos);
  EXPECT_NE(testing::sentence_of<Error>([&] {
              Session session(MPI_COMM_WORLD, settings({"model.hidden=0"}));
            }).find("model.hidden"),
            std::string::npos);
  Session works(MPI_COMM_WORLD, settings());
}

}  // namespace session_transit_test
}  // namespace lockstep
