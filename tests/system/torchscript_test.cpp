// SPDX-License-Identifier: BSD-3-Clause
// model.name=torchscript and `trainer export`: a scripted module trains, resumes, and leaves with its trained weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/archives.hpp"
#include "support/folders.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace torchscript_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;

const std::string kData =
    "--data.name=synthetic --data.shape=3,8,8 --data.size=48 --data.classes=4 --train.global_batch_size=12 "
    "--ckpt.every=3 --log.every=1 --log.pictures=0 --log.tensorboard=false ";
const std::string kEnd = "/ckpt/step-000000000007";

std::string model(const fs::path& file) { return "--model.name=torchscript --model.file=" + file.string() + " "; }

class TorchScriptTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(archive())) GTEST_SKIP() << "there is no " << archive();
  }

  static fs::path archive() { return testing::golden("models/torchscript/scripted.pt"); }
  std::string run_dir(const std::string& name) const { return "--run.dir=" + folder_.path(name) + " "; }
  ProgramResult train(int ranks, const std::string& run, int steps, const std::string& more) const {
    return run_ranks(ranks, kData + more + run_dir(run) + "--train.max_steps=" + std::to_string(steps), 120);
  }

  testing::TemporaryFolder folder_;
};

TEST_F(TorchScriptTest, BitsDoNotDependOnRanksAndResume) {
  const std::string lanes = model(archive()) + "--train.lanes=6 ";
  const ProgramResult one = train(1, "one", 7, lanes);
  ASSERT_EQ(one.exit_code, 0) << one.output;
  const ProgramResult three = train(3, "three", 7, lanes);
  ASSERT_EQ(three.exit_code, 0) << three.output;
  ASSERT_EQ(train(2, "parts", 4, lanes).exit_code, 0);
  const ProgramResult resumed = train(1, "parts", 7, lanes + "--resume=must ");
  ASSERT_EQ(resumed.exit_code, 0) << resumed.output;
  for (const char* const run : {"three", "parts"}) {
    EXPECT_EQ(testing::differences(checkpoints::read(folder_.path(run) + kEnd),
                                   checkpoints::read(folder_.path("one") + kEnd)),
              "")
        << run;
  }
}

// Ranks that own parts of the optimizer's state, of the gradients and of the parameters come to the result of ddp.
TEST_F(TorchScriptTest, ShardedRunsAgree) {
  const ProgramResult whole = train(2, "whole", 7, model(archive()));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  const auto losses = report::read_series(folder_.path("whole") + "/metrics.jsonl", "loss");
  for (const int stage : {1, 2, 3}) {
    const std::string name = "stage" + std::to_string(stage);
    const ProgramResult outcome =
        train(2, name, 7, model(archive()) + "--strategy.name=sharded --strategy.stage=" + std::to_string(stage) + " ");
    ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
    const auto sharded = report::read_series(folder_.path(name) + "/metrics.jsonl", "loss");
    ASSERT_EQ(sharded.size(), losses.size());
    for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(sharded[i].second, losses[i].second, 1e-5) << name;
  }
}

TEST_F(TorchScriptTest, ExportedArchiveHoldsTheTrainedWeights) {
  ASSERT_EQ(train(1, "run", 7, model(archive())).exit_code, 0);
  const std::string file = folder_.path("trained.pt");
  const ProgramResult exported =
      testing::run_shell(testing::trainer_program() + " export " + folder_.path("run") + " --to " + file);
  ASSERT_EQ(exported.exit_code, 0) << exported.output;
  // A run that starts from the exported file and learns nothing ends with the same parameters.
  const ProgramResult again = train(1, "again", 1, model(file) + "--optim.lr=0 --optim.weight_decay=0 ");
  ASSERT_EQ(again.exit_code, 0) << again.output;
  const auto expected = checkpoints::read(folder_.path("run") + kEnd);
  const auto found = checkpoints::read(folder_.path("again") + "/ckpt/step-000000000001");
  int compared = 0;
  for (const std::string& path : expected.array_paths()) {
    if (!path.starts_with("/model/params/")) continue;
    const auto& x = expected.array(path).bytes;
    const auto& y = found.array(path).bytes;
    EXPECT_TRUE(std::equal(x.begin(), x.end(), y.begin(), y.end())) << path;
    ++compared;
  }
  EXPECT_EQ(compared, 8);

  const char* const python = std::getenv("LOCKSTEP_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with torch";
  const ProgramResult loaded = testing::run_shell(
      std::string(python) + " -c \"import torch; m = torch.jit.load('" + file +
      "'); print('loaded', len(list(m.parameters())), int(m.state_dict()['features.1.num_batches_tracked']))\"");
  EXPECT_NE(loaded.output.find("loaded 8 "), std::string::npos) << loaded.output;
}

TEST_F(TorchScriptTest, BadFilesHaveOneSentence) {
  testing::write_file(folder_.path("text.pt"), "no archive");
  const std::string whole = testing::read_file(archive());
  testing::write_file(folder_.path("short.pt"), whole.substr(0, whole.size() / 2));
  std::string damaged = whole;
  damaged[whole.find("data/0") + 200] ^= 1;
  testing::write_file(folder_.path("damaged.pt"), damaged);
  const std::vector<fs::path> files = {folder_.path("missing.pt"), folder_.path("text.pt"), folder_.path("short.pt"),
                                       folder_.path("damaged.pt"), testing::golden("models/files/resnet_plain.pth")};
  for (const fs::path& file : files) {
    const ProgramResult outcome = train(2, "bad", 1, model(file));
    EXPECT_TRUE(outcome.exit_code == 2 || outcome.exit_code == 4) << file << outcome.output;
    EXPECT_EQ(outcome.rank_codes[0], outcome.rank_codes[1]) << file;
    EXPECT_NE(outcome.output.find(file.filename().string()), std::string::npos) << outcome.output;
  }
  const ProgramResult none = train(1, "bad", 1, "--model.name=torchscript ");
  EXPECT_EQ(none.exit_code, 2) << none.output;
}

// The code of the archive has batch norm, which cannot see the samples of other ranks.
TEST_F(TorchScriptTest, SynchronizedBatchNormIsRefused) {
  const ProgramResult outcome = train(2, "sync", 1, model(archive()) + "--ddp.sync_batch_norm=true ");
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
  EXPECT_NE(outcome.output.find("computes batch norm by its own code"), std::string::npos) << outcome.output;
}

// Written by Python: an archive of torch.export, and a module after quantization.
TEST_F(TorchScriptTest, OtherArchivesOfPythonAreRefused) {
  const char* const python = std::getenv("LOCKSTEP_PEER_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "LOCKSTEP_PEER_PYTHON names no Python with torch";
  testing::write_file(folder_.path("make.py"), R"(
import torch
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)).eval()
torch.export.save(torch.export.export(net, (torch.zeros(2, 3, 8, 8),)), "net.pt2")
torch.jit.script(torch.ao.quantization.quantize_dynamic(net)).save("quantized.pt")
)");
  const ProgramResult made = testing::run_shell("cd " + folder_.path() + " && " + python + " make.py", 120);
  ASSERT_EQ(made.exit_code, 0) << made.output;
  for (const auto& [file, words] : {std::pair<std::string, std::string>{"net.pt2", "an archive of torch.export (.pt2)"},
                                    {"quantized.pt", "is quantized"}}) {
    const ProgramResult outcome = train(2, "bad", 1, model(folder_.path(file)));
    EXPECT_EQ(outcome.rank_codes, (std::vector<int>{2, 2})) << outcome.output;
    EXPECT_NE(outcome.output.find(words), std::string::npos) << outcome.output;
  }
}

}  // namespace torchscript_test
}  // namespace lockstep
