// SPDX-License-Identifier: BSD-3-Clause
// What a run will do before it starts, and what it does when its schedule was edited meanwhile.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace schedule_test {

using testing::ProgramResult;
using testing::run_ranks;

const std::string kSmall = " --data.train_size=96 --data.val_size=48 --model.channels=2,2 --model.hidden=4";
const std::string kRun = kSmall + " --log.every=1 --ckpt.keep_best=0";

using Series = std::vector<std::pair<std::int64_t, double>>;

class EditedScheduleTest : public ::testing::Test {
 protected:
  EditedScheduleTest() {
    const ProgramResult first =
        run_ranks(2, "--run.dir=" + run_ + kRun + " --train.max_steps=6 --sched.rule=cosine,floor=0.0001");
    EXPECT_EQ(first.exit_code, 0) << first.output;
  }
  /// Goes on to step 12; the lr of every step.
  Series go_on(const std::string& options, const std::string& expected_words) {
    const ProgramResult outcome =
        run_ranks(2, "--run.dir=" + run_ + kRun + " --train.max_steps=12 --resume=must " + options);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    EXPECT_NE(outcome.output.find(expected_words), std::string::npos) << outcome.output;
    return report::read_series(run_ + "/metrics.jsonl", "lr");
  }
  /// The same from a run that was never stopped.
  Series straight(const std::string& options) {
    const std::string other = folder_.path("straight");
    EXPECT_EQ(run_ranks(2, "--run.dir=" + other + kRun + " --train.max_steps=12 " + options).exit_code, 0);
    return report::read_series(other + "/metrics.jsonl", "lr");
  }

  testing::TemporaryFolder folder_;
  std::string run_ = folder_.path("run");
};

Series after(const Series& series, std::size_t steps) {
  return {series.begin() + static_cast<std::ptrdiff_t>(steps), series.end()};
}

TEST_F(EditedScheduleTest, AProlongedRunFollowsTheLongerCurve) {
  const std::string rule = "--sched.rule=cosine,floor=0.0001";
  const Series rates =
      go_on(rule, "warning r0/2 the run has 12 steps, not 6; from step 6 on, the configured schedule is used");
  EXPECT_EQ(after(rates, 6), after(straight(rule), 6));
  EXPECT_EQ(rates.size(), 12U);
}

TEST_F(EditedScheduleTest, AnEditedRuleHoldsFromTheResumedStepOn) {
  const std::string rule = "--sched.rule=step,size=4,gamma=0.5";
  const Series rates = go_on(rule, "the schedule differs from the checkpoint's; from step 6 on");
  EXPECT_EQ(after(rates, 6), after(straight(rule), 6));
}

TEST_F(EditedScheduleTest, TheOldScheduleHoldsIfAskedFor) {
  const Series rates = go_on("--sched.rule=step,size=4,gamma=0.5 --resume.schedule=checkpoint",
                             "the schedule of the checkpoint is used (resume.schedule=checkpoint)");
  for (const auto& [step, rate] : after(rates, 6)) EXPECT_EQ(rate, 0.0001) << step;
}

// The rules that a name stands for are those of the checkpoint.
TEST_F(EditedScheduleTest, AScheduleByNameEqualsItsRules) {
  const Series rates = go_on("--sched.rule= --sched.name=cosine --sched.warmup=2epochs --sched.final_factor=0.1",
                             "the schedule differs from the checkpoint's; from step 6 on");
  const std::string rules =
      "--sched.rule=linear,end=2,by=epoch,smooth=true "
      "--sched.rule=cosine,begin=2,by=epoch,smooth=true,final_factor=0.1";
  EXPECT_EQ(after(rates, 6), after(straight(rules), 6));
}

TEST_F(EditedScheduleTest, TheOldScheduleHoldsAgainstAName) {
  const Series rates = go_on("--sched.rule= --sched.name=linear --resume.schedule=checkpoint",
                             "the schedule of the checkpoint is used (resume.schedule=checkpoint)");
  for (const auto& [step, rate] : after(rates, 6)) EXPECT_EQ(rate, 0.0001) << step;
}

/// Lines as words.
std::vector<std::vector<std::string>> rows_of(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::vector<std::string> row;
    for (std::string word; words >> word;) row.push_back(word);
    rows.push_back(row);
  }
  return rows;
}

using Rows = std::vector<std::vector<std::string>>;

// conv0 has 1 x 2 x 9 weights, conv1 2 x 2 x 9, hidden0 98 x 4, the head 4 x 10; and 18 biases.
TEST(PlanTest, GroupsArePrinted) {
  const std::string words =
      "config --groups --optim.weight_decay=0.1 --optim.no_decay=norms_biases"
      " --optim.paramwise=custom:conv,lr_mult=0.5,momentum=0.5 --optim.name=sgd";
  const ProgramResult outcome = run_ranks(2, words + kSmall);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(rows_of(outcome.output), (Rows{{"group", "lr", "weight_decay", "momentum", "tensors", "elements"},
                                           {"decay", "0.001", "0.1", "0", "2", "432"},
                                           {"lr*0.5+momentum=0.5", "0.0005", "0.1", "0.5", "4", "58"},
                                           {"no_decay", "0.001", "0", "0", "2", "14"}}));
  const ProgramResult verbose = run_ranks(1, words + " --verbose" + kSmall);
  EXPECT_EQ(rows_of(verbose.output).at(2), (std::vector<std::string>{"classifier.hidden0.weight", "392"}));
  EXPECT_EQ(rows_of(verbose.output).size(), 4U + 8U);
  EXPECT_EQ(run_ranks(1, "config --verbose").exit_code, 2);
  EXPECT_EQ(run_ranks(1, "config --groups --optim.paramwise=bias_lr_mul=2").exit_code, 2);
}

// 96 samples at 48: an epoch has 2 steps.
TEST(PlanTest, ScheduleIsPrintedOrDrawn) {
  const testing::TemporaryFolder folder;
  const std::string words =
      "schedule --train.max_epochs=3 --optim.lr=0.5 --sched.rule=step,by=epoch,size=1,gamma=0.5"
      " --sched.rule=linear,of=momentum,start_factor=0.5,end=2" +
      kSmall;
  const ProgramResult outcome = run_ranks(2, words);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(rows_of(outcome.output), (Rows{{"step", "lr", "beta1"},
                                           {"0", "0.5", "0.45"},
                                           {"1", "0.5", "0.675"},
                                           {"2", "0.25", "0.9"},
                                           {"3", "0.25", "0.9"},
                                           {"4", "0.125", "0.9"},
                                           {"5", "0.125", "0.9"}}));
  const std::string file = folder.path("out.svg");
  const ProgramResult drawn = run_ranks(2, words + " --plot " + file);
  EXPECT_EQ(drawn.exit_code, 0) << drawn.output;
  EXPECT_EQ(drawn.output, file + ": 2 curves over 6 steps\n");
  const std::string svg = testing::read_file(file);
  for (const char* word : {"<svg ", ">lr<", ">beta1<", "<path "}) EXPECT_NE(svg.find(word), std::string::npos) << word;
  const ProgramResult named =
      run_ranks(1,
                "schedule --train.max_epochs=3 --optim.lr=0.5 --sched.name=step --sched.milestones=1epochs,2epochs "
                "--sched.gamma=0.5 --sched.warmup=2 --sched.warmup_factor=0.5" +
                    kSmall);
  EXPECT_EQ(
      rows_of(named.output),
      (Rows{
          {"step", "lr"}, {"0", "0.25"}, {"1", "0.375"}, {"2", "0.25"}, {"3", "0.25"}, {"4", "0.125"}, {"5", "0.125"}}))
      << named.output;
  EXPECT_EQ(run_ranks(1, "schedule --sched.rule=cosin" + kSmall).exit_code, 2);
  EXPECT_EQ(run_ranks(1, "schedule --sched.rule=cosine,group=backbone" + kSmall).exit_code, 2);
  const ProgramResult refused = run_ranks(2, "schedule --sched.rule=cosine,floor=-1" + kSmall);
  EXPECT_EQ(refused.rank_codes, (std::vector<int>{2, 2}));
  EXPECT_NE(refused.output.find("group 'all' lr would be -"), std::string::npos) << refused.output;
}

TEST(PlanTest, HelpListsCurvesAndKinds) {
  const std::string sched = run_ranks(1, "--help=sched").output;
  for (const char* word : {"sched.rule, all rules:", "sched.rule, cosine_restart:", "periods"}) {
    EXPECT_NE(sched.find(word), std::string::npos) << word << "\n" << sched;
  }
  EXPECT_NE(run_ranks(1, "--help=optim").output.find("bias_lr_mult"), std::string::npos);
}

// A recipe for a long run can be tried with a few steps: the cosine would begin at step 100.
TEST(ShortRecipeTest, ARuleThatBeginsAfterTheEndIsReportedAndNotUsed) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  const testing::TemporaryFolder folder;
  folder.write("input.txt", std::string(3000, 'a') + "bc");
  const std::string recipe = "--config=" + std::string(source != nullptr ? source : ".") +
                             "/tools/configs/gpt-char.ini --train.max_steps=3 --data.path=" + (folder / "input.txt") +
                             " --model.embed_dim=16 --run.dir=" + (folder / "run");
  const ProgramResult outcome = run_ranks(2, recipe);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(
      outcome.output.find("'cosine,begin=100,final_factor=0.1': not used: begin (100) is not less than the end of "
                          "the run (3)"),
      std::string::npos)
      << outcome.output;
}

TEST(LrFindTest, SuggestsARateAndWritesOnlyThePlot) {
  const testing::TemporaryFolder folder;
  const std::string find =
      "cd " + folder.path() + " && " + testing::mpirun_command(2) + " " + testing::trainer_program();
  const std::string options =
      " lr-find --model.name=mlp --data.train_size=960 --optim.name=sgd --lowest=1e-3 --steps=60 --curve=lr.svg";
  const ProgramResult found = testing::run_shell(find + options);
  EXPECT_EQ(found.exit_code, 0) << found.output;
  const std::string label = "the loss decreases fastest with --optim.lr=";
  const std::size_t position = found.output.find(label);
  ASSERT_NE(position, std::string::npos) << found.output;
  const double rate = std::stod(found.output.substr(position + label.size()));
  EXPECT_GT(rate, 1e-3);
  EXPECT_LT(rate, 10);
  EXPECT_NE(testing::read_file(folder.path("lr.svg")).find("Suggested learning rate"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder.path("runs")));
  for (const char* const bad : {"--steps=1", "--lowest=0", "--highest=1e-9", "--lowest=x", "--optim.lr=0"}) {
    const ProgramResult refused = run_ranks(2, "lr-find " + std::string(bad));
    EXPECT_EQ(refused.exit_code, 2) << bad << refused.output;
  }
}

}  // namespace schedule_test
}  // namespace lockstep
