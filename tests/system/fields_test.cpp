// SPDX-License-Identifier: BSD-3-Clause
// The source `fields` through the program: training on rows, maps and windows, and malformed files.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <random>

#include "support/folders.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace fields_system_test {

using testing::ProgramResult;
using testing::run_ranks;
using Json = nlohmann::json;

constexpr int kData = 3;

std::string file(const std::string& name) { return (testing::golden("fields") / name).string(); }

/// The values of a field in the records of a run.
std::vector<double> recorded(const std::string& run, const std::string& field) {
  std::vector<double> values;
  std::istringstream lines(testing::read_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json record = Json::parse(line);
    if (record.contains(field)) values.push_back(record.at(field));
  }
  return values;
}

class FieldsProgramTest : public ::testing::Test {
 protected:
  /// Trains and returns the losses.
  std::vector<double> train(int ranks, const std::string& arguments) {
    const std::string run = folder_.path("run" + std::to_string(++runs_));
    const ProgramResult result =
        run_ranks(ranks, "--data.name=fields --log.every=1 --run.dir=" + run + " " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    return recorded(run, "loss");
  }

  testing::TemporaryFolder folder_;
  int runs_ = 0;
};

TEST_F(FieldsProgramTest, ColumnsTrainTheSameOnAnyNumberOfRanks) {
  const std::string arguments =
      "--data.path=" + file("files/climsim") +
      "/*/train_input.h5 --data.target_path=" + file("files/climsim/0001-02-01/train_target.h5") + "," +
      file("files/climsim/0001-02-02/train_target.h5") +
      " --data.layout=nc --data.val_fraction=0.2 --model.name=mlp --data.cache=off --train.lanes=2"
      " --train.global_batch_size=4 --train.max_epochs=5 --optim.lr=0.01";
  const std::vector<double> losses = train(1, arguments);
  ASSERT_GE(losses.size(), 15U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(train(2, arguments), losses);
}

TEST_F(FieldsProgramTest, MapsOfClassesTrainAModelForSegmentation) {
  const std::vector<double> losses =
      train(1, "--data.path=" + file("files/deepcam") +
                   " --data.variables=climate/data --data.target_variables=climate/labels_0"
                   " --data.layout=climate/data:yxc,climate/labels_0:yx --data.target_kind=class --data.classes=3"
                   " --data.crop=y:0-8,x:0-8 --model.name=unet --model.width=8 --model.depth=2"
                   " --train.global_batch_size=2 --train.max_epochs=8 --optim.lr=0.01");
  ASSERT_FALSE(losses.empty());
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(FieldsProgramTest, WindowsTrainAModelOfFields) {
  const std::vector<double> losses =
      train(2, "--data.path=" + file("files/pdebench/1D_Burgers_Sols_Nu0.01.hdf5") +
                   " --data.variables=tensor --data.layout=ntx --data.steps_in=2 --model.name=fno --model.width=8"
                   " --model.depth=2 --model.modes=8 --train.global_batch_size=8 --train.max_epochs=4"
                   " --optim.lr=0.01");
  ASSERT_FALSE(losses.empty());
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

/// A network on two steps of two channels, which computes differences and is rolled out.
std::string rollout_arguments() {
  return "--data.path=" + file("files/makani/train") + " --data.val_path=" + file("files/makani/test") +
         " --data.variables=fields[u10m,t2m] --data.layout=tcyx --data.steps_in=2 --data.predict=differences"
         " --model.name=unet --model.width=4 --model.depth=1 --model.norm=none --train.global_batch_size=4"
         " --train.max_steps=6 --optim.lr=0.003 --train.lanes=2 --eval.rollout=3 --ckpt.every=3";
}

TEST_F(FieldsProgramTest, RolloutsAndStatisticsAreTheSameOnAnyNumberOfRanks) {
  const std::string cache = " --data.cache=" + folder_.path("cache");
  const std::vector<double> losses = train(1, rollout_arguments() + cache);
  ASSERT_EQ(losses.size(), 6U);
  const std::string one = folder_.path("run1");
  for (const char* name : {"val/rmse/u10m", "val/rmse@1/t2m", "val/rmse@3/u10m", "val/persistence_rmse@3/t2m"}) {
    EXPECT_FALSE(recorded(one, name).empty()) << name;
  }
  // The second run computes its own statistics, the third one takes those of the first.
  EXPECT_EQ(train(2, rollout_arguments() + " --data.cache=off"), losses);
  EXPECT_EQ(train(2, rollout_arguments() + cache), losses);
  const std::string statistics = testing::read_file(one + "/statistics.json");
  EXPECT_NE(statistics, "");
  EXPECT_EQ(testing::read_file(folder_.path("run2") + "/statistics.json"), statistics);
  EXPECT_EQ(testing::read_file(folder_.path("run3") + "/statistics.json"), statistics);
  // So are the pictures and charts of the report.
  for (const char* name : {"/pictures.json", "/tables.json"}) {
    const std::string shown = testing::read_file(one + name);
    EXPECT_NE(shown, "") << name;
    EXPECT_EQ(testing::read_file(folder_.path("run2") + name), shown) << name;
  }
  const std::string page = testing::read_file(one + "/report.html");
  for (const char* words : {"<figcaption>prediction", "<figcaption>mean error", "<div class=\"bar\"",
                            "t2m: rmse</title>", ">persistence</text>", "<title>power of u10m", ", sample 1: "}) {
    EXPECT_NE(page.find(words), std::string::npos) << words;
  }
  std::size_t images = 0;
  for (std::size_t place = page.find("<img "); place != std::string::npos; place = page.find("<img ", place + 1))
    ++images;
  EXPECT_EQ(images, 2U * 2U * 4U + 2U * 2U) << "of 2 samples and 2 channels, and errors of 2 channels";

  train(1, rollout_arguments() + cache + " --eval.metrics=well");
  EXPECT_FALSE(recorded(folder_.path("run4"), "val/rollout_nrmse").empty());
  EXPECT_FALSE(recorded(folder_.path("run4"), "val/nrmse@3/t2m").empty());

  train(1, rollout_arguments() + cache + " --log.fields=t2m --log.field_samples=1");
  const std::string chosen = testing::read_file(folder_.path("run5") + "/pictures.json");
  EXPECT_NE(chosen.find("field_00_t2m_error"), std::string::npos);
  EXPECT_EQ(chosen.find("field_01"), std::string::npos);
  EXPECT_EQ(chosen.find("u10m"), std::string::npos);
  const ProgramResult unknown = run_ranks(2, "--data.name=fields --run.dir=" + folder_.path("unknown") + " " +
                                                 rollout_arguments() + " --log.fields=msl --data.cache=off");
  EXPECT_EQ(unknown.rank_codes, std::vector<int>(2, 2)) << unknown.output;
  EXPECT_NE(
      unknown.output.find("log.fields (command line): the targets have no channel 'msl'; their channels are u10m, t2m"),
      std::string::npos)
      << unknown.output;

  // The numbers are part of the checkpoint: an evaluation measures nothing.
  const ProgramResult evaluated = run_ranks(1, "eval --from=" + one + " --data.cache=off --json");
  ASSERT_EQ(evaluated.exit_code, 0) << evaluated.output;
  const Json metrics = Json::parse(evaluated.output).at("metrics");
  EXPECT_EQ(metrics.at("loss").get<double>(), recorded(one, "val/loss").back());
  EXPECT_EQ(metrics.at("rmse@3/t2m").get<double>(), recorded(one, "val/rmse@3/t2m").back());
}

TEST_F(FieldsProgramTest, TrainingThroughARolloutResumes) {
  const std::string arguments = rollout_arguments() + " --train.rollout=2 --data.cache=off";
  const std::vector<double> whole = train(2, arguments);
  const std::string run = folder_.path("resumed");
  const std::string words = "--data.name=fields --log.every=1 --run.dir=" + run + " " + arguments;
  ASSERT_EQ(run_ranks(2, words + " --train.max_steps=3").exit_code, 0);
  ASSERT_EQ(run_ranks(1, words + " --resume=must").exit_code, 0);
  EXPECT_EQ(recorded(run, "loss"), whole);
  EXPECT_NE(train(2, arguments + " --train.rollout_gradient=last"), whole);
  const ProgramResult refused =
      run_ranks(2, "--data.name=fields --eval.split=train --run.dir=" + folder_.path("refused") + " " + arguments);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("cannot be combined with train.rollout; evaluate val or test"), std::string::npos)
      << refused.output;
}

/// The arguments of a case of malformed.json in which the array `fields` is read; empty = another array.
std::string arguments_of(const Json& one_case) {
  const Json& variables = one_case.at("variables");
  const bool is_usual =
      variables.size() == 1 && variables[0].at("path") == "fields" && variables[0].at("layout") == "tcyx";
  if (!is_usual || one_case.contains("statistics")) return "";
  std::string paths;
  for (const std::string& name : one_case.at("files").get<std::vector<std::string>>()) {
    paths += (paths.empty() ? "" : ",") + file(name);
  }
  std::string arguments = "--data.path=" + paths + " --data.variables=fields --data.layout=tcyx";
  for (const char* key : {"steps_in", "steps_out", "stride", "lead"}) {
    arguments += std::string(" --data.") + key + "=" + one_case.at(key).dump();
  }
  return arguments;
}

class MalformedFieldsTest : public ::testing::TestWithParam<int> {};

TEST_P(MalformedFieldsTest, EachFaultGetsOneSentence) {
  const Json document = Json::parse(testing::read_golden("fields/malformed.json"));
  std::vector<Json> cases;
  for (const Json& one_case : document.at("cases")) {
    const bool is_of_file = std::ranges::any_of(one_case.at("must_name"), [](const Json& name) {
      return name.get<std::string>().find('.') != std::string::npos;
    });
    const bool is_refused = one_case.at("verdict") == "refuse" && one_case.at("when") == "open";
    if (is_refused && is_of_file && !one_case.contains("crop") && !arguments_of(one_case).empty()) {
      cases.push_back(one_case);
    }
  }
  ASSERT_GT(cases.size(), 10U);
  if (!testing::is_long_run()) {
    std::mt19937_64 random(testing::test_seed() + static_cast<std::uint64_t>(GetParam()));
    std::ranges::shuffle(cases, random);
    cases.resize(GetParam() == 1 ? 6 : 4);
  }
  for (const Json& one_case : cases) {
    SCOPED_TRACE(one_case.at("name").get<std::string>());
    const testing::TemporaryFolder folder;
    const ProgramResult result = run_ranks(
        GetParam(), "--data.name=fields --model.name=mlp --train.max_steps=1 --run.dir=" + folder.path("run") + " " +
                        arguments_of(one_case));
    EXPECT_EQ(result.exit_code, kData) << result.output;
    EXPECT_EQ(result.rank_codes, std::vector<int>(static_cast<std::size_t>(GetParam()), kData)) << result.output;
    const std::vector<std::string> errors = testing::error_lines(result.output);
    ASSERT_EQ(errors.size(), 1U) << result.output;
    for (const std::string& name : one_case.at("must_name").get<std::vector<std::string>>()) {
      EXPECT_NE(errors[0].find(name), std::string::npos) << name << "\n" << errors[0];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, MalformedFieldsTest, ::testing::Values(1, 2),
                         [](const auto& test) { return "np" + std::to_string(test.param); });

}  // namespace fields_system_test
}  // namespace lockstep
