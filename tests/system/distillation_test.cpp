// SPDX-License-Identifier: BSD-3-Clause
// loss.name=distill with the weights of another run and of a file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace distillation_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

class DistillationTest : public ::testing::Test {
 protected:
  std::string run_dir(const std::string& name) const { return "--run.dir=" + folder_.path(name) + " "; }

  double last(const std::string& run, const std::string& key) const {
    const auto series = report::read_series(folder_.path(run) + "/metrics.jsonl", key);
    return series.empty() ? -1 : series.back().second;
  }

  void train(int ranks, const std::string& arguments) {
    const ProgramResult outcome = run_ranks(ranks, arguments, 120);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }

  /// A teacher of digits that the students do not have.
  void train_teacher(const std::string& steps) {
    train(2, run_dir("teacher") +
                 "--data.train_size=6000 --model.channels=8,16 --model.hidden=32 --run.seed=2 "
                 "--data.val_size=100 --optim.lr=0.003 --train.max_steps=" +
                 steps);
  }

  std::string differences(const std::string& a, const std::string& b, const std::string& step) const {
    const auto end = [&](const std::string& run) {
      return checkpoints::read(folder_.path(run) + "/ckpt/step-0000000000" + step);
    };
    return testing::differences(end(a), end(b));
  }

  std::string teacher() const { return "--loss.name=distill --distill.from=" + folder_.path("teacher") + " "; }

  testing::TemporaryFolder folder_;
};

// The students have few samples. The teacher, which had many, knows how similar the digits are.
TEST_F(DistillationTest, AStudentWithATeacherLearnsMore) {
  train_teacher("250");
  const std::string student =
      "--data.train_size=200 --data.val_size=1000 --model.name=mlp --model.hidden=32 --train.global_batch_size=50 "
      "--train.max_steps=150 --eval.every=end --optim.lr=0.005 ";
  train(2, run_dir("alone") + student);
  train(2, run_dir("taught") + student + teacher() + "--distill.alpha=0.9 --distill.temperature=4");
  EXPECT_LT(last("taught", "val/loss"), 0.95 * last("alone", "val/loss"));
  EXPECT_GT(last("taught", "val/accuracy"), last("alone", "val/accuracy"));

  // Neither evaluations nor predictions need the teacher.
  fs::remove_all(folder_.path("teacher"));
  const ProgramResult evaluated = run_ranks(2, "eval --from=" + folder_.path("taught"));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const ProgramResult predicted =
      run_ranks(1, "predict --from=" + folder_.path("taught") + " --predict.out=" + folder_.path("all.csv"));
  EXPECT_EQ(predicted.exit_code, 0) << predicted.output;
}

const std::string kShort =
    "--data.train_size=120 --data.val_size=20 --model.name=mlp --model.hidden=8 --train.global_batch_size=12 "
    "--train.lanes=4 --ckpt.every=4 --log.every=1 --model.dropout=0.1 ";

TEST_F(DistillationTest, BitsDoNotDependOnRanksResumeAndFormOfTheTeacher) {
  train_teacher("4");
  train(1, run_dir("one") + kShort + teacher() + "--train.max_steps=9");
  train(2, run_dir("two") + kShort + teacher() + "--train.max_steps=9");
  EXPECT_EQ(differences("two", "one", "09"), "");
  train(2, run_dir("parts") + kShort + teacher() + "--train.max_steps=4");
  // The teacher goes on, but the run keeps the checkpoint that it had.
  train(1, "--config=" + folder_.path("teacher/config.resolved.ini") + " --train.max_steps=8 --resume=must");
  const std::string resolved = "--config=" + folder_.path("parts/config.resolved.ini") + " --train.max_steps=9 ";
  train(1, resolved + "--resume=must");
  EXPECT_EQ(differences("parts", "one", "09"), "");
  const ProgramResult other = run_ranks(2, resolved + teacher() + "--resume=4 --resume.fork=true");
  EXPECT_EQ(other.rank_codes, (std::vector<int>{4, 4})) << other.output;
  EXPECT_NE(other.output.find("the run had a teacher with other weights"), std::string::npos) << other.output;

  const std::string weights = folder_.path("teacher.safetensors");
  const ProgramResult converted = testing::run_shell(
      testing::ckpt_program() + " convert " + folder_.path("teacher/ckpt/step-000000000004") + " --to " + weights);
  ASSERT_EQ(converted.exit_code, 0) << converted.output;
  train(2, run_dir("file") + kShort + "--train.max_steps=9 --loss.name=distill --distill.from=" + weights +
               " --distill.model=cnn,channels=8,16,hidden=32");
  EXPECT_EQ(report::read_series(folder_.path("file") + "/metrics.jsonl", "loss"),
            report::read_series(folder_.path("one") + "/metrics.jsonl", "loss"));
}

TEST_F(DistillationTest, TeachersThatCannotBeUsedAreRefusedOnEveryRank) {
  folder_.write("damaged.pt", "no weights");
  fs::create_directories(folder_ / "empty");
  const auto expect_refusal = [&](const std::string& arguments, int code, const std::vector<std::string>& words) {
    const ProgramResult outcome = run_ranks(2, run_dir("refused") + kShort + arguments + " --train.max_steps=1");
    EXPECT_EQ(outcome.rank_codes, (std::vector<int>{code, code})) << arguments << outcome.output;
    const std::size_t error = outcome.output.find(" error ");
    ASSERT_NE(error, std::string::npos) << outcome.output;
    for (const std::string& word : words) {
      EXPECT_NE(outcome.output.find(word, error), std::string::npos) << word << "\n" << outcome.output;
    }
  };
  const std::string from = "--loss.name=distill --distill.from=";
  expect_refusal("--loss.name=distill", 2, {"distill needs a teacher; set distill.from"});
  expect_refusal("--distill.from=/nowhere", 2, {"set loss.name=distill"});
  expect_refusal(from + "/nowhere", 4, {"/nowhere", "does not exist"});
  expect_refusal(from + folder_.path("empty"), 4, {"contains no checkpoint"});
  expect_refusal(from + folder_.path("damaged.pt"), 2, {"distill.model", "must name the model"});
  expect_refusal(from + folder_.path("damaged.pt") + " --distill.model=mlp", 4, {"damaged.pt"});
  expect_refusal(from + folder_.path("damaged.pt") + " --distill.model=mlq", 2, {"mlq", "mlp"});
  train_teacher("1");
  expect_refusal(teacher() + "--distill.model=mlp,hidden=7", 4, {"does not fit the model", "hidden0.weight  missing"});
  fs::create_directories(folder_ / "images/a");
  fs::create_directories(folder_ / "images/b");
  for (int i = 0; i < 24; ++i) {
    folder_.write("images/" + std::string(i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".ppm",
                  "P6 8 8 255\n" + std::string(192, static_cast<char>(3 * i)));
  }
  const std::string images =
      "--data.name=folder --data.cache=off --data.val_fraction=0.25 --data.path=" + folder_.path("images") + " " +
      teacher();
  const ProgramResult outcome =
      run_ranks(2, run_dir("classes") + "--model.name=mlp --train.global_batch_size=12 --train.max_steps=1 " + images);
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  EXPECT_NE(outcome.output.find("the teacher has 10 classes, but the data have 2"), std::string::npos)
      << outcome.output;
}

}  // namespace distillation_test
}  // namespace lockstep
