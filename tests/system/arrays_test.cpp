// SPDX-License-Identifier: BSD-3-Clause
// The sources `hdf5` and `npy` through the program: training on images, classes and numbers, and `trainer data`.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "support/folders.hpp"
#include "support/npy.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace arrays_system_test {

using testing::ProgramResult;
using testing::run_ranks;
using Json = nlohmann::json;

constexpr int kConfiguration = 2;

std::string file(const std::string& name) { return testing::golden("data/sources/" + name).string(); }

class ArraysProgramTest : public ::testing::Test {
 protected:
  ProgramResult run(int ranks, const std::string& arguments) {
    run_ = folder_.path("run" + std::to_string(++runs_));
    return run_ranks(ranks, "--log.every=1 --train.lanes=2 --train.global_batch_size=2 --eval.batch_size=2 --run.dir=" +
                                run_ + " " + arguments);
  }
  /// Trains and returns the numbers of a field in the records of the run.
  std::vector<double> train(int ranks, const std::string& arguments, const std::string& field = "loss") {
    const ProgramResult result = run(ranks, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.output;
    std::vector<double> values;
    std::istringstream lines(testing::read_file(run_ + "/metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const Json record = Json::parse(line);
      if (record.contains(field)) values.push_back(record.at(field));
    }
    return values;
  }

  testing::TemporaryFolder folder_;
  std::string run_;
  int runs_ = 0;
};

TEST_F(ArraysProgramTest, ImagesTrainTheSameFromHdf5AndNpzOnAnyNumberOfRanks) {
  const std::string model =
      " --data.val_fraction=0.3 --data.transform=random_crop,size=8,padding=2 --data.transform=horizontal_flip"
      " --data.transform=normalize --model.channels=4 --model.hidden=8 --train.max_epochs=4";
  const std::vector<double> losses = train(1, "--data.name=hdf5 --data.path=" + file("h5/images.h5") + model);
  ASSERT_GE(losses.size(), 8U);
  EXPECT_EQ(train(2, "--data.name=hdf5 --data.path=" + file("h5/images.h5") + model), losses);
  // The same images and labels, of which an npz file has no class names.
  EXPECT_EQ(train(2, "--data.name=npy --data.path=" + file("npz/deflated.npz") + model), losses);
}

TEST_F(ArraysProgramTest, PartsOfAFileAreTheSplits) {
  const std::vector<double> losses =
      train(2,
            "--data.name=hdf5 --data.path=" + file("h5/splits.h5") +
                " --model.channels=4 --model.hidden=8 --train.max_epochs=2 --data.classes=4",
            "val/loss");
  EXPECT_FALSE(losses.empty());
}

// A step with the weights 2, 0, 1 and 3 is a step with so many copies of the samples.
TEST_F(ArraysProgramTest, WeightsCountAsCopies) {
  std::vector<float> inputs, targets, copied_inputs, copied_targets;
  const std::vector<float> weights = {2, 0, 1, 3};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const std::vector<float> input = {std::sin(static_cast<float>(i)), std::cos(3 * static_cast<float>(i))};
    inputs.insert(inputs.end(), input.begin(), input.end());
    targets.push_back(static_cast<float>(i * i));
    for (int copy = 0; copy < static_cast<int>(weights[i]); ++copy) {
      copied_inputs.insert(copied_inputs.end(), input.begin(), input.end());
      copied_targets.push_back(targets.back());
    }
  }
  for (const char* folder : {"weighted", "copied"}) std::filesystem::create_directory(folder_.path(folder));
  testing::write_npy(folder_ / "weighted/x.npy", {4, 2}, inputs);
  testing::write_npy(folder_ / "weighted/y.npy", {4}, targets);
  testing::write_npy(folder_ / "weighted/w.npy", {4}, weights);
  testing::write_npy(folder_ / "copied/x.npy", {6, 2}, copied_inputs);
  testing::write_npy(folder_ / "copied/y.npy", {6}, copied_targets);
  const std::string common =
      " --data.name=npy --data.val_fraction=0 --model.name=mlp --model.hidden=4 --train.precision=fp64"
      " --train.max_steps=5 --optim.name=sgd --optim.lr=0.02 --train.lanes=2 --eval.split=train --eval.every=5";
  const auto of_run = [&](int ranks, const std::string& more, const std::string& field) {
    return train(ranks, common + more, field);
  };
  const std::string copied = " --train.global_batch_size=6 --data.path=" + folder_.path("copied");
  const std::string weighted =
      " --train.global_batch_size=4 --data.weight_array=w --data.path=" + folder_.path("weighted");
  for (const char* field : {"loss", "val/loss"}) {
    const std::vector<double> wanted = of_run(1, copied, field);
    const std::vector<double> one = of_run(1, weighted, field);
    EXPECT_EQ(of_run(2, weighted, field), one) << field;
    ASSERT_EQ(one.size(), wanted.size()) << field;
    ASSERT_EQ(one.size(), std::string(field) == "loss" ? 5U : 1U);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], wanted[i], 1e-9 * wanted[i]) << field << i;
  }
  const ProgramResult refused = run(2, common + weighted + " --loss.name=relative_l2");
  EXPECT_EQ(refused.rank_codes, std::vector<int>(2, kConfiguration)) << refused.output;
  EXPECT_NE(refused.output.find("relative_l2 does not weigh samples"), std::string::npos) << refused.output;
}

TEST_F(ArraysProgramTest, NumbersTrainARegression) {
  const std::string arguments = "--data.name=hdf5 --data.path=" + file("h5/regression.h5") +
                                " --data.val_fraction=0.2 --model.name=mlp --model.standardize=true"
                                " --train.max_epochs=10 --optim.lr=0.01";
  const std::vector<double> losses = train(1, arguments);
  ASSERT_GE(losses.size(), 20U);
  EXPECT_LT(losses.back(), losses.front());
  EXPECT_EQ(train(2, arguments), losses);
}

TEST_F(ArraysProgramTest, NumbersTrainClasses) {
  const std::vector<double> losses = train(2, "--data.name=hdf5 '--data.path=" + file("h5/caffe_{0,1}.h5") +
                                                  "'"
                                                  " --data.target_kind=class --data.val_fraction=0 --model.channels=4"
                                                  " --model.hidden=8 --train.max_epochs=4 --eval.every=never");
  ASSERT_GE(losses.size(), 8U);
  EXPECT_LT(losses.back(), losses.front());
}

TEST_F(ArraysProgramTest, DataDescribesImagesAndNumbers) {
  const ProgramResult images =
      run_ranks(1, "data --data.val_fraction=0 --data.name=hdf5 --data.path=" + file("h5/images.h5"));
  EXPECT_EQ(images.exit_code, 0) << images.output;
  EXPECT_NE(images.output.find("height             12 / 12 / 12"), std::string::npos) << images.output;
  const ProgramResult numbers = run_ranks(1, "data --data.name=hdf5 --data.path=" + file("h5/regression.h5"));
  EXPECT_EQ(numbers.exit_code, 0) << numbers.output;
  EXPECT_NE(numbers.output.find("train: 7 samples of 4"), std::string::npos) << numbers.output;
  const std::string arrays = "inputs: 7 rows in 1 file, ";
  EXPECT_NE(numbers.output.find(arrays), std::string::npos) << numbers.output;
  EXPECT_NE(numbers.output.find("targets: 7 rows in 1 file, "), std::string::npos) << numbers.output;
  const ProgramResult sheet =
      run_ranks(1, "data --sheet=a.html --data.name=hdf5 --data.path=" + file("h5/regression.h5"));
  EXPECT_EQ(sheet.exit_code, kConfiguration) << sheet.output;
}

TEST_F(ArraysProgramTest, KeysOfImagesAreRefusedForNumbers) {
  const ProgramResult result =
      run(2, "--data.name=hdf5 --data.transform=horizontal_flip --data.path=" + file("h5/regression.h5"));
  EXPECT_EQ(result.exit_code, kConfiguration) << result.output;
  const std::vector<std::string> errors = testing::error_lines(result.output);
  ASSERT_EQ(errors.size(), 1U) << result.output;
  EXPECT_NE(errors[0].find("data.transform"), std::string::npos) << errors[0];
}

}  // namespace arrays_system_test
}  // namespace lockstep
