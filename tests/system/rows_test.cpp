// SPDX-License-Identifier: BSD-3-Clause
// Parts of a program and those of Lockstep never replace each other silently, and what a program forgets is one
// sentence with the documented exit code on several ranks.
#include <gtest/gtest.h>

#include <ostream>

#include "support/program.hpp"
#include "support/sampling.hpp"

namespace lockstep {
namespace rows_test {

constexpr int kConfiguration = 2;
constexpr int kData = 3;
constexpr double kSeconds = 60;  // a rank that waits for its peers would wait longer

struct Clash {
  const char* name;
  const char* part;  // see clashing_program.cpp
  const char* options;
  const char* sentence;
  int exit_code = kConfiguration;

  friend std::ostream& operator<<(std::ostream& out, const Clash& clash) { return out << clash.part; }
};

std::int64_t count(const std::string& text, const std::string& word) {
  std::int64_t found = 0;
  for (std::size_t position = text.find(word); position != std::string::npos; position = text.find(word, position + 1))
    ++found;
  return found;
}

std::string program() {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/tests/system/clashing_program";
}

const char* const kRun =
    " --data.name=points --model.name=line --train.max_steps=2 --train.global_batch_size=8 "
    "--log.every=1 --ckpt.keep_best=0 ";

testing::ProgramResult run(const std::string& part, const std::string& options) {
  return testing::run_shell("LOCKSTEP_PART='" + part + "' " + testing::mpirun_command(2) + " " + program() + options,
                            kSeconds);
}

/// The ranks agree before the first step, and one of them tells the sentence.
class RowsTest : public ::testing::TestWithParam<Clash> {};

TEST_P(RowsTest, AreRefusedOnceForAllRanks) {
  const Clash& clash = GetParam();
  const testing::TemporaryFolder folder;
  const testing::ProgramResult outcome =
      run(clash.part, kRun + std::string(clash.options) + " --run.dir=" + folder.path("a"));
  EXPECT_EQ(outcome.exit_code, clash.exit_code) << outcome.output;
  EXPECT_EQ(count(outcome.output, clash.sentence), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, " error r"), 1) << outcome.output;
}

/// Every rank may come to the sentence by itself in a step.
class StepsTest : public ::testing::TestWithParam<Clash> {};

TEST_P(StepsTest, EndAllRanksWithOneSentence) {
  const Clash& clash = GetParam();
  const testing::TemporaryFolder folder;
  const testing::ProgramResult outcome =
      run(clash.part, kRun + std::string(clash.options) + " --run.dir=" + folder.path("a"));
  EXPECT_EQ(outcome.exit_code, clash.exit_code) << outcome.output;
  EXPECT_GE(count(outcome.output, clash.sentence), 1) << outcome.output;
  EXPECT_EQ(count(outcome.output, " error r"), count(outcome.output, clash.sentence)) << outcome.output;
}

const auto kName = [](const auto& test) { return std::string(test.param.name); };

TEST(NoClashTest, TrainsTheProgram) {
  const testing::TemporaryFolder folder;
  const testing::ProgramResult outcome =
      run("put:mine", kRun + std::string("--train.hooks=mine --run.dir=") + folder.path("a"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

INSTANTIATE_TEST_SUITE_P(
    Names, RowsTest,
    ::testing::Values(
        Clash{"Empty", "source:", "", "this program's data source has the name ''; a name is not empty"},
        Clash{"Blank", "model:a b", "", "this program's model has the name 'a b'; a name is not empty"},
        Clash{"BuiltIn", "source:folder", "", "a built-in data source and this program's data source have the name"},
        Clash{"Twice", "model:line", "", "two rows of this program (model) have the name 'line'"},
        Clash{"Average", "average:none", "", "the name 'none', which selects no average of Lockstep"},
        Clash{"CommHook", "comm_hook:none", "", "the name 'none', which selects no communication hook of Lockstep"}),
    kName);

const char* const kHook = "--train.hooks=mine";

INSTANTIATE_TEST_SUITE_P(
    Values, RowsTest,
    ::testing::Values(Clash{"Step", "put:step", kHook, "have the name 'step'; a hook, step, model or meter"},
                      Clash{"Rate", "put:lr", kHook, "have the name 'lr'; a hook, step, model or meter"},
                      Clash{"Evaluation", "put:val/loss", kHook, "have the name 'val/loss'; a hook, step, model"},
                      Clash{"Loss", "result:loss", "--eval.metrics=mine", "a meter computes a value named 'loss'"},
                      Clash{"Accuracy", "result:accuracy", "--train.metrics=mine", "a value named 'accuracy'"},
                      Clash{"Count", "result:count", "--eval.metrics=mine", "a meter computes a value named 'count'"},
                      Clash{"Samples", "result:samples", "--train.metrics=mine", "a value named 'samples'"},
                      Clash{"NoName", "result:", "--eval.metrics=mine", "mine: a result of the meter has no name"},
                      Clash{"LossCount", "loss:count", "--model.name=mine", "have the name 'val/count'; a hook, step"}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Values, StepsTest,
    ::testing::Values(
        Clash{"Memory", "put:memory_mb", kHook, "'memory_mb', which is the name of a value of Lockstep's"},
        Clash{"Seconds", "put_of_rank:step_seconds", kHook, "'step_seconds', which is the name of a value"},
        Clash{"NoName", "put:", kHook, "puts a value without a name"},
        Clash{"Losses", "loss:loss", "--model.name=mine", "two losses that are logged as 'loss_raw'"},
        Clash{"RawLoss", "loss:loss_raw", "--model.name=mine", "that are logged as 'loss_raw'"}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Nothing, RowsTest,
    ::testing::Values(
        Clash{"Model", "no_model", "--model.name=mine", "the function `make` of the model returned nothing"},
        Clash{"Hook", "no_hook", kHook, "mine: its function `make` returned nothing"},
        Clash{"Split", "no_split", "--data.name=mine", "the source 'mine' returned no training split"},
        Clash{"Train", "no_train", "--data.name=mine", "the source 'mine' returned no training split"},
        Clash{"Images", "no_images", "--data.name=mine", "data.name = mine has no training part", kData},
        Clash{"Step", "no_step", "--train.step_kind=mine",
              "train.step_kind (command line): its function `make` returned nothing"},
        Clash{"ManualStep", "no_manual_step", "--train.step_kind=mine",
              "train.step_kind (command line): its function `make`"},
        Clash{"Order", "no_order", "--data.sampler=mine", "data.sampler (command line): Sampler: the order is missing"},
        Clash{"Meter", "no_meter", "--eval.metrics=mine", "mine: the meter has no functions; set add and read"},
        Clash{"Results", "no_results", "--eval.metrics=mine", "a meter returns 0 numbers, but has 1 results"},
        Clash{"Curve", "no_curve", "--sched.rule=mine", "mine: its function `make` returned nothing"},
        Clash{"CommHook", "no_comm_hook", "--ddp.comm_hook=mine", "its function `make` returned no hook"},
        Clash{"Weight", "no_function", "--ema.kind=mine", "this program's average 'mine' has no function; set weight"}),
    kName);

INSTANTIATE_TEST_SUITE_P(
    Nothing, StepsTest,
    ::testing::Values(
        Clash{"Losses", "no_losses", "--train.step_kind=mine", "the model returned no entry with a name"},
        Clash{"Loss", "no_loss", "--loss.name=mine", "the loss of the model 'loss' is not a tensor"},
        Clash{"Completion", "no_completion", "--ddp.comm_hook=mine", "hook returned no function"},
        Clash{"Tensor", "no_tensor", "--ddp.comm_hook=mine", "of the communication hook returned no tensor"},
        Clash{"Weight", "no_weight", "--ema.kind=mine", "ema.kind = mine: the weight of update 1 is nan"}),
    kName);

// A value of a sample with the name of a prediction, of a column, or of none.
TEST(PredictionsTest, KeepTheirNames) {
  const testing::TemporaryFolder folder;
  ASSERT_EQ(run("", kRun + std::string("--run.dir=") + folder.path("a")).exit_code, 0);
  const auto predict = [&](const std::string& name, const std::string& ending) {
    return run("value:" + name, " predict --from " + folder.path("a") +
                                    " --data.name=mine --predict.out=" + folder.path(name + "." + ending));
  };
  std::uint64_t number = 0;
  for (const char* const name : {"top", "index", "target"}) {
    if (!testing::is_sampled(number++, 3)) continue;
    const testing::ProgramResult outcome = predict(name, "jsonl");
    EXPECT_EQ(outcome.exit_code, kConfiguration) << outcome.output;
    EXPECT_EQ(count(outcome.output, "have a value named '" + std::string(name) + "', which is the name of"), 1)
        << outcome.output;
  }
  const testing::ProgramResult column = predict("class_2", "csv");
  EXPECT_EQ(column.exit_code, kConfiguration) << column.output;
  EXPECT_EQ(count(column.output, "have a value named 'class_2', which is the name of another column"), 1)
      << column.output;
  EXPECT_EQ(predict("mine", "jsonl").exit_code, 0);
}

}  // namespace rows_test
}  // namespace lockstep
