// SPDX-License-Identifier: BSD-3-Clause
// What checkpoints contain about the data: the statistics of normalize,mean=auto, and the transforms.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <vector>

#include "checkpoints/store/store.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace data_state_test {

namespace fs = std::filesystem;
using checkpoints::Archive;
using testing::ProgramResult;
using testing::run_ranks;

/// Photographs of 8 x 8 pixels in two classes, and a run with measured statistics.
class DataStateTest : public ::testing::Test {
 protected:
  static constexpr int kImages = 24;

  void SetUp() override {
    for (int i = 0; i < kImages; ++i) write_image(i, 40 + 3 * i);
    for (int i = 0; i < 6; ++i) write("val/" + class_of(i) + "/" + std::to_string(i) + ".ppm", ppm(60 + 20 * i));
  }

  static std::string class_of(int i) { return i % 2 == 0 ? "a" : "b"; }

  /// The upper half is brighter than the lower one.
  static std::string ppm(int value) {
    std::string bytes = "P6 8 8 255\n";
    for (int i = 0; i < 64; ++i) {
      for (const int channel : {0, 1, 2}) bytes += static_cast<char>(value + 10 * channel + (i < 32 ? 20 : 0));
    }
    return bytes;
  }

  void write(const std::string& name, const std::string& bytes) const {
    const fs::path path = fs::path(folder_.path("images")) / name;
    fs::create_directories(path.parent_path());
    testing::write_file(path, bytes);
  }
  void write_image(int i, int value) const {
    write("train/" + class_of(i) + "/" + std::to_string(10 + i) + ".ppm", ppm(value));
  }

  std::string run(const std::string& name) const { return folder_.path(name); }
  /// @param name  of the run's folder
  ProgramResult train(int ranks, const std::string& name, int steps, const std::string& more = "") const {
    const std::string transform =
        more.find("data.transform") == std::string::npos ? "--data.transform=normalize,mean=auto " : "";
    const std::string model = more.find("model.name") == std::string::npos ? "--model.name=mlp --model.hidden=16 " : "";
    return run_ranks(ranks, "--data.name=folder --data.cache=off --data.path=" + folder_.path("images") +
                                " --train.lanes=2 --train.global_batch_size=8 "
                                "--ckpt.every=4 --eval.every=never --train.max_steps=" +
                                std::to_string(steps) + " --run.dir=" + run(name) + " " + model + transform + more);
  }
  Archive checkpoint(const std::string& name) const {
    return checkpoints::read(checkpoints::latest(run(name) + "/ckpt").value());
  }

  testing::TemporaryFolder folder_;
};

std::vector<double> numbers_in(const Archive& archive, const std::string& path) {
  const checkpoints::Array& array = archive.array(path);
  std::vector<double> numbers(array.bytes.size() / sizeof(double));
  std::memcpy(numbers.data(), array.bytes.data(), array.bytes.size());
  return numbers;
}

void expect_equal_arrays(const Archive& a, const Archive& b, const std::string& group) {
  int count = 0;
  for (const std::string& path : a.array_paths()) {
    if (!path.starts_with(group)) continue;
    ++count;
    const auto bytes = a.array(path).bytes;
    const auto others = b.array(path).bytes;
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), others.begin(), others.end())) << path;
  }
  EXPECT_GT(count, 0);
}

void expect_says(const ProgramResult& outcome, const std::string& words) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
}

TEST_F(DataStateTest, EvaluationsAndPredictionsUseTheStatisticsOfTheCheckpoint) {
  expect_says(train(2, "run", 4), "(measured)");
  expect_says(train(1, "single", 4), "(measured)");
  const Archive stored = checkpoint("run");
  expect_equal_arrays(stored, checkpoint("single"), "/data");
  expect_equal_arrays(stored, checkpoint("single"), "/model");
  // The values of channel c are 40 + 3 i + 10 c, and 20 more in one half.
  const std::vector<double> mean = numbers_in(stored, "/data/statistics/mean");
  ASSERT_EQ(mean.size(), 3U);
  for (int c = 0; c < 3; ++c) EXPECT_NEAR(mean[c], (40 + 3 * 11.5 + 10 * c + 10) / 255, 1e-12);

  const auto evaluate = [&](int ranks, const std::string& more) {
    const ProgramResult outcome = testing::run_shell(testing::mpirun_command(ranks) + " " + testing::trainer_program() +
                                                     " eval --from " + run("run") + " --json " + more + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  };
  const auto predict = [&](int ranks, const std::string& more) {
    const std::string out = folder_.path("predictions.jsonl");
    fs::remove(out);
    const ProgramResult outcome = run_ranks(
        ranks, "predict --from " + run("run") + " --predict.probabilities=true --predict.out=" + out + " " + more);
    expect_says(outcome, "(from the checkpoint)");
    return testing::read_file(out);
  };
  const std::string evaluation = evaluate(1, "");
  const std::string predictions = predict(1, "");
  EXPECT_NE(evaluation.find("loss"), std::string::npos) << evaluation;
  EXPECT_FALSE(predictions.empty());

  for (int i = 0; i < kImages; ++i) write_image(i, 150 + i);
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(predict(ranks, ""), predictions);
    EXPECT_EQ(evaluate(ranks, ""), evaluation);
  }
  // Statistics of the changed images would give other values.
  const std::string others = "--data.val_transform=normalize,mean=0.7,std=0.04";
  EXPECT_NE(evaluate(1, others), evaluation);
}

TEST_F(DataStateTest, AResumedRunUsesTheStatisticsOfTheCheckpoint) {
  expect_says(train(2, "run", 4), "(measured)");
  const Archive stored = checkpoint("run");
  fs::copy(run("run"), run("single"), fs::copy_options::recursive);
  write_image(kImages - 1, 200);  // the digest of the data contains the first 16 of 24 images
  expect_says(train(2, "run", 8, "--resume=must"), "(from the checkpoint)");
  expect_says(train(1, "single", 8, "--resume=must"), "reproducibility: bitwise");
  const Archive resumed = checkpoint("run");
  EXPECT_EQ(resumed.integer("/", "step"), 8);
  expect_equal_arrays(resumed, stored, "/data");
  expect_equal_arrays(resumed, checkpoint("single"), "/model");
  // A new run measures others.
  train(1, "new", 4);
  EXPECT_NE(numbers_in(checkpoint("new"), "/data/statistics/mean"), numbers_in(stored, "/data/statistics/mean"));
}

TEST_F(DataStateTest, OtherTransformsOfAResumedRunAreStated) {
  expect_says(train(2, "run", 4), "(measured)");
  const ProgramResult resumed =
      train(2, "run", 8, "--resume=must --data.transform=horizontal_flip,p=0.5 --data.transform=normalize,mean=auto");
  expect_says(resumed,
              "reproducibility: statistical, because data.transform is 'horizontal_flip,p=0.5; normalize,mean=auto' "
              "and was 'normalize,mean=auto'");
  const ProgramResult decode = train(1, "run", 12,
                                     "--resume=must --data.decode=fast --data.transform=horizontal_flip,p=0.5 "
                                     "--data.transform=normalize,mean=auto");
  expect_says(decode,
              "statistical, because data.transform is 'horizontal_flip,p=0.5; normalize,mean=auto; data.decode=fast' "
              "and was 'horizontal_flip,p=0.5; normalize,mean=auto'");
}

// The folder that `ckpt convert` writes for timm has the numbers that the run measured.
TEST_F(DataStateTest, FoldersOfTimmHaveTheStatistics) {
  expect_says(train(1, "resnet", 4,
                    "--model.name=resnet18 --model.stem=imagenet --data.transform=resize,size=32 "
                    "--data.transform=normalize,mean=auto --data.val_transform=resize,size=32 "
                    "--data.val_transform=normalize,mean=auto"),
              "(measured)");
  const std::string folder = folder_.path("timm");
  const ProgramResult converted =
      testing::run_shell(testing::ckpt_program() + " convert " + run("resnet") + " --as timm --to " + folder);
  EXPECT_EQ(converted.exit_code, 0) << converted.output;
  const auto json = nlohmann::json::parse(testing::read_file(folder + "/config.json"));
  const Archive stored = checkpoint("resnet");
  EXPECT_EQ(json["pretrained_cfg"]["mean"], numbers_in(stored, "/data/statistics/mean"));
  EXPECT_EQ(json["pretrained_cfg"]["std"], numbers_in(stored, "/data/statistics/std"));
}

}  // namespace data_state_test
}  // namespace lockstep
