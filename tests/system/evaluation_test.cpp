// SPDX-License-Identifier: BSD-3-Clause
// `trainer eval` on several numbers of ranks, and what a regression reports.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "report/files/artifacts.hpp"
#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace evaluation_test {

using testing::ProgramResult;
using testing::run_ranks;

double last(const std::string& run, const std::string& key) {
  const auto series = report::read_series(run + "/metrics.jsonl", key);
  return series.empty() ? std::nan("") : series.back().second;
}

/// The JSON document among other lines of an output; "" = there is none.
std::string document_in(const std::string& output) {
  const std::size_t begin = output.find('{'), end = output.rfind('}');
  return begin == std::string::npos || end == std::string::npos ? "" : output.substr(begin, end + 1 - begin);
}

// Outputs of a classification are neither probabilities nor values nor labels.
TEST(EvaluationTest, UnfittingMetricsAreRefusedBeforeTheFirstStep) {
  const testing::TemporaryFolder folder;
  for (const std::string meter : {"probability", "regression", "regression_order", "multilabel"}) {
    for (const std::string key : {"eval.metrics", "train.metrics"}) {
      const ProgramResult outcome = run_ranks(2, "--model.name=mlp --train.max_steps=2 --log.every=1 --" + key + "=" +
                                                     meter + " --run.dir=" + folder.path("run"));
      EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
      EXPECT_NE(outcome.output.find(key), std::string::npos) << outcome.output;
      EXPECT_NE(outcome.output.find(meter + " does not fit the task, which is classification"), std::string::npos)
          << outcome.output;
      EXPECT_EQ(outcome.output.find("step 1/"), std::string::npos) << outcome.output;
    }
  }
}

TEST(EvaluationTest, ValuesThatNobodyProvidesAreRefusedBeforeTheFirstStep) {
  const testing::TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> metrics = {
      {"top_k,k=1,output=missing", "the model does not return the output 'missing', only 'output'"},
      {"top_k,k=1,target=missing", "samples do not contain 'missing', only 'data', 'label'"},
      {"regression,target=label", "errors of 10 outputs need the same number of outputs and targets, not 10 and 1"}};
  for (const auto& [metric, sentence] : metrics) {
    for (const int ranks : {1, 2}) {
      const ProgramResult outcome = run_ranks(
          ranks, "--model.name=mlp --train.max_steps=2 --log.every=1 --eval.every=end --eval.metrics=" + metric +
                     " --run.dir=" + folder.path("run"));
      EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
      for (const std::string& part : {std::string("eval.metrics (command line): "), sentence}) {
        EXPECT_NE(outcome.output.find(part), std::string::npos) << outcome.output;
      }
      EXPECT_EQ(outcome.output.find("step 1/"), std::string::npos) << outcome.output;
    }
  }
}

// The statistics of batch norm were averaged over two ranks. A sum of three equal numbers, divided by three, can differ
// from them in the last bit.
TEST(EvaluationTest, ItsBytesDoNotDependOnTheNumberOfRanks) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult trained =
      run_ranks(2,
                "--model.name=resnet18 --model.width=4 --data.train_size=96 --data.val_size=50 --train.max_steps=3 "
                "--loss.name=cross_entropy --loss.class_weights=1,0.1,0.3,0.7,1,1.3,1,1,0.9,0.77 "
                "--run.dir=" +
                    run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  std::string expected;
  for (const int ranks : {1, 2, 3}) {
    const ProgramResult evaluated =
        run_ranks(ranks, "eval --json --from=" + run + " --eval.batch_size=7 --eval.metrics=confusion");
    ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
    const std::string document = document_in(evaluated.output);
    ASSERT_NE(document, "") << evaluated.output;
    if (ranks == 1) expected = document;
    EXPECT_EQ(document, expected) << ranks;
  }
  EXPECT_NE(expected.find("\"loss\":"), std::string::npos) << expected;
}

TEST(EvaluationTest, NamesTheClasses) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult trained = run_ranks(1,
                                          "--data.train_size=96 --data.val_size=50 --train.max_steps=2 "
                                          "--run.dir=" +
                                              run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const auto numbers_of = [&](int ranks) {
    const ProgramResult evaluated = run_ranks(ranks, "eval --json --eval.per_class=true --from=" + run);
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
    return nlohmann::json::parse(document_in(evaluated.output), nullptr, /*allow_exceptions=*/false);
  };
  const nlohmann::json one = numbers_of(1);
  EXPECT_EQ(numbers_of(2), one);
  int named = 0;
  for (int c = 0; c < 10; ++c) named += one["metrics"].contains("accuracy/" + std::to_string(c)) ? 1 : 0;
  EXPECT_EQ(named, 10) << one.dump();
}

/// Images of one gray level, and a number in kilometers that is 1000 + 8 * level.
class RegressionTest : public ::testing::Test {
 protected:
  static double number_of(int i) { return 1000 + 8.0 * level_of(i); }
  static int level_of(int i) { return (i * 37) % 250; }

  void SetUp() override {
    for (const auto& [split, first, count] : {std::tuple{"train", 0, 120}, {"val", 120, 30}}) {
      std::ofstream list(folder_.path(std::string(split) + ".txt"));
      for (int i = first; i < first + count; ++i) {
        const std::string name = std::to_string(i) + ".ppm";
        folder_.write(name, "P6 8 8 255\n" + std::string(192, static_cast<char>(level_of(i))));
        list << name << " " << number_of(i) << "\n";
      }
    }
  }

  testing::TemporaryFolder folder_;
};

// Inputs and targets are standardized, but errors and the chart have the unit of the targets, whose deviation is 577.
TEST_F(RegressionTest, MetricsAndChartHaveTheUnitOfTheTargets) {
  const std::string run = folder_.path("run");
  const ProgramResult outcome =
      run_ranks(2, "--data.name=list --data.target=real --data.path=" + folder_.path("train.txt") +
                       " --data.val_path=" + folder_.path("val.txt") +
                       " --model.name=mlp --model.hidden= --model.standardize=true --train.global_batch_size=12 "
                       "--train.max_steps=60 --optim.name=adamw --optim.lr=0.03 --eval.every=end "
                       "--run.dir=" +
                       run);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const auto tables = report::read_artifacts(run).tables;
  ASSERT_EQ(tables.size(), 1U);
  EXPECT_EQ(tables[0].name, "val/predicted");
  ASSERT_EQ(tables[0].columns, 2U);
  ASSERT_EQ(tables[0].rows(), 30U);
  double squares = 0, sum = 0, errors = 0, absolute = 0;
  for (std::size_t i = 0; i < 30; ++i) {
    const double target = tables[0].values[2 * i];
    EXPECT_EQ(target, number_of(120 + static_cast<int>(i))) << "in the order of the data";
    const double error = tables[0].values[2 * i + 1] - target;
    sum += target;
    squares += target * target;
    errors += error * error;
    absolute += std::abs(error);
  }
  EXPECT_NEAR(last(run, "val/rmse"), std::sqrt(errors / 30), 1e-6 * last(run, "val/rmse"));
  EXPECT_NEAR(last(run, "val/mae"), absolute / 30, 1e-6 * last(run, "val/mae"));
  EXPECT_NEAR(last(run, "val/r2"), 1 - errors / (squares - sum * sum / 30), 1e-6);
  EXPECT_GT(last(run, "val/r2"), 0.9);
  EXPECT_LT(last(run, "val/rmse"), 180);
  EXPECT_LT(last(run, "val/loss"), 0.1) << "of standardized targets";
  const std::string page = testing::read_file(run + "/report.html");
  for (const char* words : {"Evaluation after step 60", "<title>Predicted against true values</title>", ">equal<"}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }

  // Predictions from the checkpoint alone, without the training data, on any number of ranks.
  const ProgramResult alone = run_ranks(1, "eval --from=" + run);
  const ProgramResult three = run_ranks(3, "eval --from=" + run);
  const auto numbers = [](const std::string& output) {
    const std::size_t begin = std::min(output.find("step 60 "), output.size());
    return output.substr(begin, output.find('\n', begin) - begin);
  };
  EXPECT_EQ(numbers(alone.output), numbers(three.output));
  EXPECT_NE(alone.output.find("val/rmse"), std::string::npos) << alone.output;
}

/// Three classes of six images, each of one color. The names of the folders are arbitrary bytes.
void write_colors(const testing::TemporaryFolder& folder, const std::vector<std::string>& names, int size) {
  for (std::size_t c = 0; c < names.size(); ++c) {
    std::filesystem::create_directories(folder.path("images/" + names[c]));
    for (int k = 0; k < 6; ++k) {
      std::string pixels;
      for (int i = 0; i < 3 * size * size; ++i) {
        pixels += static_cast<char>(static_cast<std::size_t>(i) % 3 == c ? 220 : 10 * k);
      }
      const std::string text = std::to_string(size);
      folder.write("images/" + names[c] + "/" + std::to_string(k) + ".ppm",
                   "P6 " + text + " " + text + " 255\n" + pixels);
    }
  }
}

std::string color_training(const testing::TemporaryFolder& folder, const std::string& transform = "normalize") {
  return "--train.max_steps=40 --train.global_batch_size=6 --eval.every=end --eval.split=train "
         "--eval.per_class=true --optim.lr=0.02 --model.channels=4 --model.hidden=8 --data.name=folder "
         "--data.cache=off --data.transform=" +
         transform + " --data.path=" + folder.path("images") + " --run.dir=" + folder.path("run");
}

// One image of the evaluation is damaged.
TEST(EvaluationTest, AFailingEvaluationDoesNotLoseTheTraining) {
  const testing::TemporaryFolder folder;
  write_colors(folder, {"a", "b", "c"}, 8);
  std::filesystem::copy(folder.path("images"), folder.path("val"), std::filesystem::copy_options::recursive);
  folder.write("val/b/3.ppm", "P6 8 8 255\nshort");
  const std::string data = " --data.check=off --eval.split=val --data.val_path=" + folder.path("val");
  for (const std::string when : {"--eval.every=end", "--eval.every=2"}) {
    std::filesystem::remove_all(folder.path("run"));
    const ProgramResult failed = run_ranks(2, color_training(folder) + data + " --train.max_steps=3 " + when);
    EXPECT_EQ(failed.exit_code, 3) << failed.output;
    EXPECT_NE(failed.output.find("b/3.ppm"), std::string::npos) << failed.output;
    const ProgramResult evaluated = run_ranks(2, "eval --from=" + folder.path("run") + " --eval.split=train");
    EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
    const std::string step = when == "--eval.every=end" ? "step 3 " : "step 2 ";
    EXPECT_NE(evaluated.output.find(step), std::string::npos) << evaluated.output;
  }
}

// Also damaged or unlabeled ones.
TEST(EvaluationTest, FoldersThatACommandDoesNotUseAreNotRead) {
  const testing::TemporaryFolder folder;
  write_colors(folder, {"train/a", "train/b"}, 8);
  std::filesystem::create_directories(folder.path("images/val/other"));
  std::filesystem::create_directories(folder.path("images/test"));
  folder.write("images/val/other/1.ppm", "no image");
  folder.write("images/test/1.ppm", "no image");
  const ProgramResult trained = run_ranks(2, color_training(folder) + " --data.check=full --eval.every=never");
  EXPECT_EQ(trained.exit_code, 0) << trained.output;
  EXPECT_EQ(trained.output.find("images/test"), std::string::npos) << trained.output;
  const std::string from = " --from=" + folder.path("run");
  EXPECT_EQ(run_ranks(1, "eval --eval.split=train" + from).exit_code, 0);
  EXPECT_EQ(run_ranks(1, "predict --predict.split=train --predict.out=" + folder.path("p.csv") + from).exit_code, 0);
  const ProgramResult used = run_ranks(1, "eval --eval.split=val" + from);
  EXPECT_EQ(used.exit_code, 3) << used.output;
  EXPECT_NE(used.output.find("the class 'other' does not occur in the training part"), std::string::npos)
      << used.output;
}

nlohmann::json evaluation_of(const testing::TemporaryFolder& folder) {
  const ProgramResult evaluated = run_ranks(1, "eval --json --from=" + folder.path("run"));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  return nlohmann::json::parse(document_in(evaluated.output), nullptr, false);
}

// The names permute those of the folders.
TEST(EvaluationTest, GivesTheNumbersOfATrainingWithOtherClassNames) {
  for (const char* names : {"b\nc\na\n", "tench\ngoldfish\nshark\n"}) {
    const testing::TemporaryFolder folder;
    write_colors(folder, {"a", "b", "c"}, 8);
    folder.write("names.txt", names);
    const ProgramResult trained =
        run_ranks(1, color_training(folder) + " --data.class_names=" + folder.path("names.txt"));
    ASSERT_EQ(trained.exit_code, 0) << trained.output;
    EXPECT_NE(trained.output.find(" val/accuracy 1.000"), std::string::npos) << trained.output;
    EXPECT_NE(evaluation_of(folder).dump().find("\"accuracy\":1.0"), std::string::npos) << evaluation_of(folder);
  }
}

TEST(EvaluationTest, FindsClassesWhoseNamesAreNotUtf8) {
  const testing::TemporaryFolder folder;
  write_colors(folder, {"caf\xE8", "caf\xE9", "dog"}, 8);
  const ProgramResult trained = run_ranks(1, color_training(folder));
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const std::string evaluated = evaluation_of(folder).dump();
  EXPECT_NE(evaluated.find("\"accuracy\":1.0"), std::string::npos) << evaluated;
  EXPECT_EQ(last(folder.path("run"), "val/accuracy/caf\\xE8"), 1);
  EXPECT_EQ(last(folder.path("run"), "val/accuracy/caf\\xE9"), 1);
}

TEST(EvaluationTest, RefusesImagesWithoutLabels) {
  const testing::TemporaryFolder folder;
  write_colors(folder, {"a", "b", "c"}, 8);
  ASSERT_EQ(run_ranks(1, color_training(folder)).exit_code, 0);
  const ProgramResult evaluated = run_ranks(1, "eval --from=" + folder.path("run") + " --data.unlabeled=true");
  EXPECT_EQ(evaluated.exit_code, 3) << evaluated.output;
  EXPECT_NE(evaluated.output.find("no sample has a target, so that there is nothing to evaluate"), std::string::npos)
      << evaluated.output;
}

// Only the training resizes its images.
TEST(EvaluationTest, ImagesOfAnotherSizeAreRefusedBeforeTheFirstStep) {
  const testing::TemporaryFolder folder;
  write_colors(folder, {"a", "b", "c"}, 16);
  for (const int ranks : {1, 2}) {
    const ProgramResult trained =
        run_ranks(ranks, color_training(folder, "resize,size=8,8 --data.transform=normalize") +
                             " --data.val_transform=normalize --eval.split=val");
    EXPECT_EQ(trained.exit_code, 2) << trained.output;
    EXPECT_NE(trained.output.find("the samples of val have the shape [3, 16, 16], those of the training [3, 8, 8], and "
                                  "the model does not accept them; set data.val_transform"),
              std::string::npos)
        << trained.output;
    EXPECT_EQ(trained.output.find(" step "), std::string::npos) << trained.output;
  }
}

}  // namespace evaluation_test
}  // namespace lockstep
