// SPDX-License-Identifier: BSD-3-Clause
// `trainer data`: facts about a data set, without training. What a training says about its loader.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "report/files/metrics.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace data_command_test {

using testing::ProgramResult;
using testing::run_ranks;
using testing::run_shell;

nlohmann::json json_of(const std::string& arguments) {
  const ProgramResult outcome = run_shell(testing::trainer_program() + " data --json " + arguments + " 2>/dev/null");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  return nlohmann::json::parse(outcome.output);
}

/// Images as text files of the format PGM, which a test can write.
class DataCommandTest : public ::testing::Test {
 protected:
  /// A gray image with rows of these values.
  void write_image(const std::string& name, int width, int height, int value) {
    const std::filesystem::path path = std::filesystem::path(data_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::string bytes = "P5 " + std::to_string(width) + " " + std::to_string(height) + " 255\n";
    for (int i = 0; i < width * height; ++i) bytes += static_cast<char>(i % 2 == 0 ? value : 0);
    testing::write_file(path, bytes);
  }

  testing::TemporaryFolder folder_;
  std::string data_ = folder_.path("images");
  std::string source_ = "--data.name=folder --data.cache=off --data.path=" + data_ + " ";
};

TEST_F(DataCommandTest, CountsSizesDuplicatesAndStatistics) {
  write_image("train/a/1.pgm", 4, 2, 255);
  write_image("train/a/2.pgm", 8, 2, 255);
  write_image("train/b/3.pgm", 6, 6, 255);
  write_image("val/a/copy.pgm", 8, 2, 255);
  write_image("val/b/4.pgm", 2, 10, 255);
  const nlohmann::json facts = json_of(source_);
  EXPECT_EQ(facts["class_names"], nlohmann::json({"a", "b"}));
  const nlohmann::json& train = facts["splits"]["train"];
  EXPECT_EQ(train["images"], 3);
  EXPECT_EQ(train["images_of_class"], nlohmann::json({2, 1}));
  EXPECT_EQ(train["width"], (nlohmann::json{{"min", 4.0}, {"median", 6.0}, {"max", 8.0}}));
  EXPECT_EQ(train["height"], (nlohmann::json{{"min", 2.0}, {"median", 2.0}, {"max", 6.0}}));
  EXPECT_EQ(train["aspect"], (nlohmann::json{{"min", 1.0}, {"median", 2.0}, {"max", 4.0}}));
  EXPECT_EQ(train["bytes"], 3 * 11 + 4 * 2 + 8 * 2 + 6 * 6);
  EXPECT_EQ(train["channels"], nlohmann::json({{"1", 3}}));
  EXPECT_EQ(facts["splits"]["val"]["images_of_class"], nlohmann::json({1, 1}));
  ASSERT_EQ(facts["duplicates"].size(), 1U);
  EXPECT_EQ(facts["duplicates"][0]["same_as"].size(), 1U);
  // Half of the pixels are 255, the others 0.
  EXPECT_EQ(facts["mean"], nlohmann::json({0.5, 0.5, 0.5}));
  EXPECT_EQ(facts["std"], nlohmann::json({0.5, 0.5, 0.5}));
}

TEST_F(DataCommandTest, DamagedImagesAreListedOnEveryRank) {
  for (const std::string name : {"train/a/1.pgm", "train/a/2.pgm", "train/b/3.pgm", "val/a/4.pgm"}) {
    write_image(name, 4, 4, 200);
  }
  testing::write_file(data_ + "/train/b/short.pgm", "P5 4 4 255\nabc");
  testing::write_file(data_ + "/val/a/text.jpg", "this is no image");
  const ProgramResult outcome = run_ranks(2, "data --check " + source_);
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_NE(outcome.output.find("bad: " + data_ + "/train/b/short.pgm: "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("bad: " + data_ + "/val/a/text.jpg: "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("2 images cannot be read"), std::string::npos) << outcome.output;
}

TEST_F(DataCommandTest, SheetsArePages) {
  for (const std::string name : {"train/a/1.pgm", "train/b/2.pgm", "val/a/3.pgm"}) write_image(name, 20, 16, 200);
  const std::string lines =
      "--data.transform=random_resized_crop,size=8 --data.transform=horizontal_flip "
      "--data.val_transform=resize,size=8 ";
  for (const std::string command : {"data ", "data --list-transforms "}) {
    const std::string page = folder_.path("sheet.html");
    EXPECT_EQ(run_ranks(1, command + source_ + lines + "--sheet=" + page).exit_code, 0);
    const std::string text = testing::read_file(page);
    EXPECT_NE(text.find("random_resized_crop "), std::string::npos);
    EXPECT_NE(text.find("data:image/png;base64,iVBORw0KGgo"), std::string::npos) << "the pictures are PNG files";
  }
  const ProgramResult refused = run_ranks(1, "data " + source_ + lines + "--sheet=sheet.png");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("'sheet.png' must end in .html"), std::string::npos) << refused.output;
}

// Zeros of the tensor have the color of the mean: black for the mean 0, which a black image does not show.
TEST_F(DataCommandTest, SheetsShowErasedBoxes) {
  for (const std::string name : {"train/a/1.pgm", "train/b/2.pgm", "val/a/3.pgm"}) write_image(name, 20, 16, 0);
  const std::string page = folder_.path("sheet.html");
  const auto pictures = [&](const std::string& lines) {
    const ProgramResult outcome =
        run_ranks(1, "data " + source_ + "--data.val_transform=to_float " + lines + "--sheet=" + page);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    const std::string text = testing::read_file(page);
    const std::string start = "base64,";
    std::vector<std::string> found;
    for (std::size_t position = text.find(start); position != std::string::npos;
         position = text.find(start, position + 1)) {
      found.push_back(text.substr(position, text.find('"', position) - position));
    }
    EXPECT_EQ(found.size(), 2U * 8U);
    return found;
  };
  const std::string erasing = " --data.transform=random_erasing,scale=0.2,0.3,p=";
  const std::vector<std::string> plain = pictures("--data.transform=normalize,mean=0.5,std=0.2" + erasing + "0 ");
  const std::vector<std::string> erased = pictures("--data.transform=normalize,mean=0.5,std=0.2" + erasing + "1 ");
  const std::vector<std::string> black = pictures("--data.transform=normalize,mean=0,std=0.2" + erasing + "1 ");
  const std::vector<std::string> noise = pictures("--data.transform=to_float" + erasing + "1,value=pixel ");
  for (std::size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(plain[i], plain[0]);
    EXPECT_EQ(black[i], plain[0]);
    const bool is_original = i % 8 == 0;
    EXPECT_EQ(erased[i] == plain[0], is_original) << i;
    EXPECT_EQ(noise[i] == plain[0], is_original) << i;
  }
}

TEST_F(DataCommandTest, TheSpeedHasAVerdict) {
  for (const std::string name : {"train/a/1.pgm", "train/b/2.pgm", "val/a/3.pgm"}) write_image(name, 20, 16, 200);
  const ProgramResult outcome = run_ranks(1,
                                          "data --speed=0.5 --data.transform=resize,size=8 "
                                          "--data.transform=center_crop,size=8 --data.val_transform=resize,size=8 " +
                                              source_);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("Most of the time is used for "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("One loader thread gives "), std::string::npos) << outcome.output;
  EXPECT_EQ(run_ranks(1, "data --speed=fast " + source_).exit_code, 2);
}

TEST_F(DataCommandTest, SourcesWithoutImageFiles) {
  const nlohmann::json digits = json_of("--data.train_size=25 --data.val_size=10");
  EXPECT_EQ(digits["splits"]["train"]["samples"], 25);
  EXPECT_EQ(digits["splits"]["train"]["samples_of_class"], nlohmann::json({3, 3, 3, 3, 3, 2, 2, 2, 2, 2}));
  const std::string path = folder_.path("text.txt");
  const std::string line = "to be or not to be, that is the question\n";
  testing::write_file(path, line + line + line);
  const nlohmann::json text = json_of("--data.name=text --data.block=5 --data.path=" + path);
  EXPECT_EQ(text["splits"]["train"]["first_window"], "to be");
  EXPECT_EQ(run_ranks(1, "data --sheet=a.html").exit_code, 2);
}

TEST_F(DataCommandTest, Photographs) {
  const std::filesystem::path photos = testing::sample_data("photos");
  if (!std::filesystem::is_directory(photos)) GTEST_SKIP() << "there is no " << photos;
  const nlohmann::json facts = json_of("--check --data.name=folder --data.cache=off --data.path=" + photos.string());
  // photos/README.md: 12 classes, 100 and 30 patches of each, 44 to 80 pixels wide, every twentieth a PNG.
  EXPECT_EQ(facts["class_names"].size(), 12U);
  EXPECT_EQ(facts["splits"]["train"]["images_of_class"], nlohmann::json(std::vector<int>(12, 100)));
  EXPECT_EQ(facts["splits"]["val"]["images_of_class"], nlohmann::json(std::vector<int>(12, 30)));
  EXPECT_EQ(facts["splits"]["train"]["width"]["min"], 44.0);
  EXPECT_EQ(facts["splits"]["train"]["width"]["max"], 80.0);
  EXPECT_EQ(facts["splits"]["train"]["formats"]["PNG"], 60);
  EXPECT_EQ(facts["splits"]["train"]["formats"]["JPEG"], 1140);
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(photos / "train")) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  EXPECT_EQ(facts["splits"]["train"]["bytes"], bytes);
  EXPECT_TRUE(facts["splits"]["train"]["bad"].empty());
  EXPECT_TRUE(facts["splits"]["val"]["bad"].empty());
  EXPECT_TRUE(facts["duplicates"].empty());
}

// Random transforms, decoded by any number of threads on any number of ranks, also after a resume in mid-epoch: the
// losses are equal in all bits.
TEST(LoadedImagesTest, ThreadsRanksAndResumesDoNotChangeTheSamples) {
  const testing::TemporaryFolder folder;
  const std::string run =
      "--data.name=synthetic --data.shape=3,20,24 --data.size=120 --data.val_fraction=0.2 "
      "--data.transform=random_resized_crop,size=12 --data.transform=color_jitter,brightness=0.4 "
      "--data.transform=horizontal_flip --data.val_transform=resize,size=12 "
      "--data.val_transform=center_crop,size=12 --model.channels=4,4 --model.hidden=8 "
      "--train.lanes=12 --train.global_batch_size=24 --log.every=1 "
      "--ckpt.keep_best=0 ";
  const auto losses = [&](const std::string& name) {
    return report::read_series(folder.path(name) + "/metrics.jsonl", "loss");
  };
  const auto train = [&](int ranks, int workers, const std::string& name, const std::string& more) {
    const ProgramResult outcome = run_ranks(
        ranks, run + "--data.workers=" + std::to_string(workers) + " --run.dir=" + folder.path(name) + " " + more);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  };
  train(1, 0, "reference", "--train.max_steps=9");  // four steps per epoch
  const auto expected = losses("reference");
  ASSERT_EQ(expected.size(), 9U);
  EXPECT_NE(expected[0].second, expected[4].second);
  const std::vector<std::pair<int, int>> ranks_and_workers = {{1, 3}, {2, 1}, {3, 0}, {3, 3}, {4, 1}};
  for (const auto& [ranks, workers] : ranks_and_workers) {
    const std::string name = std::to_string(ranks) + "x" + std::to_string(workers);
    train(ranks, workers, name, "--train.max_steps=9");
    EXPECT_EQ(losses(name), expected) << name;
  }
  train(2, 3, "resumed", "--train.max_steps=6");
  train(3, 1, "resumed", "--train.max_steps=9 --resume=must");
  EXPECT_EQ(losses("resumed"), expected);
}

/// Generated photographs of 1024 x 1024 pixels, which are never made: a batch has more bytes than a computer.
const std::string kHuge =
    "--data.name=synthetic --data.shape=3,1024,1024 --data.size=200000 --data.val_fraction=0.5 --model.name=resnet18 "
    "--model.width=4 --train.max_steps=1 ";

TEST(LoadedImagesTest, BatchesWithoutMemoryAreRefusedOnAllRanks) {
  const testing::TemporaryFolder folder;
  const std::string run = kHuge + "--run.dir=" + folder.path("run") + " ";
  const ProgramResult training = run_ranks(2, run + "--train.global_batch_size=80000 --eval.every=never");
  EXPECT_EQ(training.exit_code, 2) << training.output;
  EXPECT_NE(training.output.find(" are available on this host, but the loader of a rank holds up to "),
            std::string::npos)
      << training.output;
  EXPECT_NE(training.output.find("reduce train.global_batch_size"), std::string::npos) << training.output;
}

TEST(LoadedImagesTest, EvaluationsWithoutMemoryAreRefusedOnAllRanks) {
  const testing::TemporaryFolder folder;
  const std::string small =
      "--data.name=synthetic --data.shape=3,16,16 --data.size=20 --data.val_fraction=0.5 --model.name=resnet18 "
      "--model.width=4 --train.global_batch_size=4 --train.max_steps=1 --run.dir=" +
      folder.path("run");
  const ProgramResult trained = run_ranks(1, small);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  const ProgramResult refused = run_ranks(
      2, "eval --from=" + folder.path("run") + " --data.shape=3,1024,1024 --data.size=200000 --eval.batch_size=80000");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("while it evaluates; reduce eval.batch_size"), std::string::npos) << refused.output;
}

TEST(LoadedImagesTest, MetricsHaveTheTimesOfLoading) {
  const testing::TemporaryFolder folder;
  const std::string run = folder.path("run");
  const ProgramResult trained = run_ranks(
      2,
      "--data.name=synthetic --data.shape=3,64,64 --data.size=80 --data.transform=random_resized_crop,size=16 "
      "--data.val_transform=resize,size=16 --data.val_transform=center_crop,size=16 --model.channels=4 "
      "--model.hidden=8 --train.global_batch_size=8 --train.max_steps=8 --log.every=4 "
      "--run.dir=" +
          run);
  ASSERT_EQ(trained.exit_code, 0) << trained.output;
  for (const std::string part : {"read", "decode", "transform"}) {
    const auto series = report::read_series(run + "/metrics.jsonl", "load_ms/" + part);
    ASSERT_FALSE(series.empty()) << part;  // the loader may have finished before the second line
    for (const auto& [step, milliseconds] : series) {
      EXPECT_GE(milliseconds, 0) << part;
      EXPECT_LT(milliseconds, 10'000) << part;
    }
  }
  const auto transforms = report::read_series(run + "/metrics.jsonl", "load_ms/transform");
  EXPECT_GT(transforms[0].second, 0);
}

}  // namespace data_command_test
}  // namespace lockstep
