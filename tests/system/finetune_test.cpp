// SPDX-License-Identifier: BSD-3-Clause
// Fine-tuning on photographs with weights that were trained on photographs of other classes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace finetune_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

class FinetuneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const fs::path photos = testing::sample_data("photos");
    if (!fs::is_directory(photos)) GTEST_SKIP() << "there is no " << photos;
    std::vector<std::string> classes;
    for (const auto& entry : fs::directory_iterator(photos / "train")) classes.push_back(entry.path().filename());
    std::sort(classes.begin(), classes.end());
    ASSERT_EQ(classes.size(), 12U);
    for (const char* split : {"train", "val"}) write_lists(photos / split, split, classes);
  }

  /// Every second class belongs to the list of the base, the others to that of the fine-tuning.
  void write_lists(const fs::path& photos, const std::string& split, const std::vector<std::string>& classes) const {
    std::ofstream base(folder_.path("base_" + split + ".txt"));
    std::ofstream other(folder_.path("other_" + split + ".txt"));
    for (std::size_t c = 0; c < classes.size(); ++c) {
      std::vector<std::string> files;
      for (const auto& entry : fs::directory_iterator(photos / classes[c])) files.push_back(entry.path().string());
      std::sort(files.begin(), files.end());
      for (const std::string& file : files) (c % 2 == 0 ? base : other) << file << "\t" << c / 2 << "\n";
    }
  }

  /// A network on the list of this name.
  std::string arguments(const std::string& list, const std::string& run, const std::string& model) const {
    return "--data.name=list --data.path=" + folder_.path(list + "_train.txt") +
           " --data.val_path=" + folder_.path(list + "_val.txt") +
           " --data.transform=random_resized_crop,size=32,scale=0.4,1 --data.transform=horizontal_flip "
           "--data.transform=normalize --data.val_transform=resize,size=36 --data.val_transform=center_crop,size=32 "
           "--data.val_transform=normalize --model.name=" +
           model + " --eval.every=end --optim.name=adamw --run.dir=" + folder_.path(run) + " ";
  }

  std::string from_base(const std::string& step) const {
    return "--init.from=" + folder_.path("base/ckpt/step-000000000" + step) + " --init.head=reset ";
  }

  /// @return  of the last evaluation
  double accuracy(const std::string& run) const {
    const auto series = report::read_series(folder_.path(run) + "/metrics.jsonl", "val/accuracy");
    return series.empty() ? 0 : series.back().second;
  }

  void train(int ranks, const std::string& arguments) {
    const ProgramResult outcome = run_ranks(ranks, arguments, 300);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  }

  testing::TemporaryFolder folder_;
};

// Batch norm layers below layer4 are frozen and keep their statistics; each layer has a rate of its own.
TEST_F(FinetuneTest, FrozenBatchNormAndLayerwiseRatesResumeBitForBit) {
  const std::string resnet = "resnet18 --model.width=4";
  train(1, arguments("base", "base", resnet) + "--optim.lr=0.002 --train.max_steps=2 --ckpt.every=2");
  const std::string tuning =
      from_base("002") +
      "--finetune.train=layer4,head --finetune.unfreeze=layer3@6 --sched.rule=constant --optim.lr=0.002 "
      "--optim.paramwise=layer_decay=0.75 --train.global_batch_size=12 --train.lanes=4 "
      "--ckpt.every=4 --ckpt.keep_last=5 ";
  train(1, arguments("other", "straight", resnet) + tuning + "--train.max_steps=9");
  train(2, arguments("other", "parts", resnet) + tuning + "--train.max_steps=4");
  train(1, arguments("other", "parts", resnet) + tuning + "--train.max_steps=9 --resume=must");
  const auto end = [&](const std::string& run) {
    return checkpoints::read(folder_.path(run) + "/ckpt/step-000000000009");
  };
  EXPECT_EQ(testing::differences(end("parts"), end("straight")), "");

  const checkpoints::Archive base = checkpoints::read(folder_.path("base/ckpt/step-000000000002"));
  const checkpoints::Archive tuned = end("straight");
  const auto is_equal = [&](const std::string& path) {
    const auto now = tuned.array(path).bytes;
    const auto before = base.array(path).bytes;
    return std::equal(now.begin(), now.end(), before.begin(), before.end());
  };
  EXPECT_TRUE(is_equal("/model/buffers/layer2.0.bn1.running_mean"));
  EXPECT_FALSE(is_equal("/model/buffers/layer4.0.bn1.running_mean"));
  EXPECT_TRUE(is_equal("/model/params/layer2.0.conv1.weight"));
  EXPECT_FALSE(is_equal("/model/params/layer3.0.conv1.weight")) << "it joined after step 6";
  EXPECT_FALSE(is_equal("/model/params/layer4.0.conv1.weight"));
  const ProgramResult groups =
      run_ranks(1, "config --groups " + arguments("other", "none", resnet) + tuning + "--train.max_steps=9");
  EXPECT_EQ(groups.exit_code, 0) << groups.output;
}

// Only the new head is trained, on features of photographs of other classes. It reaches a higher accuracy than the
// whole network from random values after the same number of steps, with the better of two learning rates.
TEST_F(FinetuneTest, BeatsTrainingFromScratchAfterTheSameSteps) {
  const std::string resnet =
      "resnet18 --model.width=8 --train.global_batch_size=48 --optim.weight_decay=0.01 --sched.rule=one_cycle "
      "--run.threads=1 ";
  train(1, arguments("base", "base", resnet) + "--optim.lr=0.004 --train.max_steps=150");
  ASSERT_GT(accuracy("base"), 0.7);
  const std::vector<std::string> seeds = {"1", "2", "3"};
  const auto mean_accuracy = [&](const std::string& name, const std::string& more) {
    double sum = 0;
    for (const std::string& seed : seeds) {
      const std::string run = name + seed;
      train(1, arguments("other", run, resnet) + "--train.max_steps=15 --run.seed=" + seed + " " + more);
      sum += accuracy(run);
    }
    return sum / static_cast<double>(seeds.size());
  };
  const double tuned = mean_accuracy(
      "tuned", "--init.from=" + folder_.path("base") + " --init.head=reset --finetune.train=head --optim.lr=0.4");
  const double scratch = std::max(mean_accuracy("slow", "--optim.lr=0.002"), mean_accuracy("fast", "--optim.lr=0.004"));
  EXPECT_GT(tuned, scratch + 0.05);
  std::cout << "accuracy after 15 steps, mean of 3 seeds: fine-tuned " << tuned << ", from scratch " << scratch << "\n";
}

}  // namespace finetune_test
}  // namespace lockstep
