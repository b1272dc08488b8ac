// SPDX-License-Identifier: BSD-3-Clause
// Wrong arguments, wrong calls and failures: the same sentence on every rank.
#include <lockstep/core/error.hpp>
#include <lockstep/engine/registry.hpp>

#include <chrono>
#include <functional>
#include <limits>
#include <thread>

#include "sessions.hpp"
#include "support/sentence.hpp"

namespace lockstep {
namespace session_misuse_test {

using testing::parameters_of;
using testing::samples;
using testing::small_settings;

struct WrongSamples {
  const char* name;
  std::function<SampleTensors()> make;
  const char* sentence;
};

std::vector<WrongSamples> wrong_samples() {
  const SampleTensors good = samples(0, 4);
  const at::Tensor input = good[0].second;
  const at::Tensor target = good[1].second;
  return {
      {"shape",
       [=] {
         return SampleTensors{{"input", at::zeros({4, 2})}, {"target", target}};
       },
       "a sample of 'input' has the shape [2], but data.input_shape says [3]"},
      {"target shape",
       [=] {
         return SampleTensors{{"input", input}, {"target", at::zeros({4})}};
       },
       "a sample of 'target' has the shape [], but data.target_shape says [2]"},
      {"counts",
       [=] {
         return SampleTensors{{"input", input}, {"target", at::zeros({3, 2})}};
       },
       "'input' has 4 samples, but 'target' has 3"},
      {"name",
       [=] {
         return SampleTensors{{"input", input}, {"targets", target}};
       },
       "the target 'target' is missing; there are 'input', 'targets'"},
      {"twice",
       [=] {
         return SampleTensors{{"input", input}, {"input", input}, {"target", target}};
       },
       "there are two arrays of the name 'input'"},
      {"scalar",
       [=] {
         return SampleTensors{{"input", at::zeros({})}, {"target", target}};
       },
       "'input' has no dimension of samples; the first one counts them"},
      {"exception", []() -> SampleTensors { throw std::runtime_error("the solver diverged"); }, "the solver diverged"},
  };
}

TEST(SessionMisuseTest, WrongSamplesOfOneRankChangeNothingAnywhere) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings());
  session.train(samples(0, 4));
  const at::Tensor before = parameters_of(session);
  const int wrong_rank = world.size() - 1;
  for (const WrongSamples& wrong : wrong_samples()) {
    const SampleSource good = [] { return samples(0, 4); };
    const std::string sentence = testing::sentence_of<Error>(
        [&] { session.train(world.rank() == wrong_rank ? SampleSource(wrong.make) : good); });
    const std::string place = world.size() == 1 ? "" : "rank " + std::to_string(wrong_rank) + ": ";
    EXPECT_EQ(sentence, place + wrong.sentence) << wrong.name;
  }
  testing::expect_same_bits(parameters_of(session), before);
  EXPECT_EQ(session.step(), 1);
  session.train(samples(0, 4));
  EXPECT_EQ(session.step(), 2);
}

TEST(SessionMisuseTest, ClassesOutsideOfTheirRangeAreRefused) {
  Session session(MPI_COMM_WORLD, {"model.name=mlp", "data.kind=classification", "data.input_shape=3", "data.classes=2",
                                   "run.threads=1"});
  const auto train = [&](const at::Tensor& target) {
    session.train({{"input", samples(0, 2)[0].second}, {"target", target}});
  };
  EXPECT_NE(testing::sentence_of<Error>([&] {
              train(at::tensor({0, 2}));
            }).find("sample 1: the target 2 is not one"),
            std::string::npos);
  EXPECT_NE(testing::sentence_of<Error>([&] {
              train(at::tensor({0.0, 1.0}));
            }).find("are integers"),
            std::string::npos);
  train(at::tensor({0, -100}));  // ignored
}

TEST(SessionMisuseTest, DifferentCallsAreRefusedAndTheRunGoesOn) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank makes one call";
  Session session(MPI_COMM_WORLD, small_settings());
  const std::string sentence = testing::sentence_of<Error>([&] {
    if (world.rank() == 1) {
      session.save();
    } else {
      session.train(samples(0, 4));
    }
  });
  EXPECT_EQ(sentence,
            "rank 0 calls train, but rank 1 calls save; all ranks of a run make the same collective calls in the same "
            "order");
  session.push(samples(0, 4));
  EXPECT_EQ(testing::sentence_of<Error>([&] { session.train_buffer(1 + world.rank()); }),
            "ranks request different numbers of steps");
  session.train(samples(0, 4));
  EXPECT_EQ(session.step(), 1);
}

TEST(SessionMisuseTest, ARankThatDoesNotCallIsNamedAfterTheTimeLimit) {
  const mpi::Communicator world = mpi::Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "one rank waits for nobody";
  Session session(MPI_COMM_WORLD, small_settings({"comm.timeout_s=1"}));
  const int late = world.size() - 1;
  if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  const std::string sentence = testing::sentence_of<CommError>([&] { session.train(samples(0, 4)); });
  if (world.rank() != late) {
    EXPECT_NE(sentence.find("rank " + std::to_string(late)), std::string::npos) << sentence;
  }
  EXPECT_EQ(testing::sentence_of<CommError>([&] { session.train(samples(0, 4)); }), sentence);
  world.barrier();
}

TEST(SessionMisuseTest, NothingToTrainIsRefused) {
  Session session(MPI_COMM_WORLD, small_settings());
  EXPECT_EQ(testing::sentence_of<Error>([&] { session.train(SampleTensors{}); }),
            "no rank has samples, so that there is nothing to train");
}

TEST(SessionMisuseTest, ANumberThatIsNotFiniteEndsTheRunOnEveryRank) {
  const mpi::Communicator world = mpi::Communicator::world();
  Session session(MPI_COMM_WORLD, small_settings({"train.nonfinite=stop"}));
  SampleTensors given = samples(0, 4);
  if (world.is_root()) given[0].second[2][1] = std::numeric_limits<float>::quiet_NaN();
  const std::string sentence = testing::sentence_of<NumericError>([&] { session.train(given); });
  EXPECT_NE(sentence.find("not finite"), std::string::npos) << sentence;
  EXPECT_EQ(testing::sentence_of<NumericError>([&] { session.train(samples(0, 4)); }), sentence);
  EXPECT_EQ(testing::sentence_of<NumericError>([&] { session.predict({samples(0, 4)[0]}); }), sentence);
  session.close();
}

TEST(SessionMisuseTest, SettingsAreCheckedBeforeAnythingIsOpened) {
  const auto open = [](const testing::SessionSettings& settings) {
    return testing::sentence_of<Error>([&] { Session session(MPI_COMM_WORLD, settings); });
  };
  EXPECT_EQ(open({"model.name"}), "the setting 'model.name' is not key=value, such as model.name=mlp");
  EXPECT_NE(open({"model.nam=mlp"}).find("model.name"), std::string::npos);
  EXPECT_NE(open({"purpose=both"}).find("neither train nor predict"), std::string::npos);
  EXPECT_NE(open({"model.name=mlp", "data.target_shape=2"}).find("data.input_shape is not set"), std::string::npos);
  EXPECT_NE(open({"model.name=mlp", "data.input_shape=3"}).find("data.target_shape is not set"), std::string::npos);
  EXPECT_NE(open(small_settings({"train.mix=mixup"})).find("samples of a program are not mixed"), std::string::npos);
  EXPECT_NE(open({"from=/nowhere"}).find("/nowhere"), std::string::npos);
}

TEST(SessionMisuseTest, CallsThatNeedAFolderOrATrainingSaySo) {
  Session session(MPI_COMM_WORLD, small_settings());
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.save(); }),
            "run.dir is not set, so that the run has no checkpoints");
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.metric("loss", 1); }),
            "the records of the run have a value 'loss' of their own; choose another name");
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.parameter("hidden0.wight"); }),
            "the model has no parameter or buffer 'hidden0.wight'; do you mean 'hidden0.weight'?");
  session.close();
  EXPECT_EQ(testing::sentence_of<ConfigError>([&] { session.train(samples(0, 1)); }), "the run is closed");
}

}  // namespace session_misuse_test
}  // namespace lockstep
