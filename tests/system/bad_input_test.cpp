// SPDX-License-Identifier: BSD-3-Clause
// Bad input gets one clear sentence and the documented exit code, on every rank.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "checkpoints/store/store.hpp"
#include "report/files/metrics.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace bad_input_test {

namespace fs = std::filesystem;
using testing::ProgramResult;
using testing::run_ranks;
using testing::write_file;

constexpr int kConfiguration = 2;
constexpr int kData = 3;
constexpr int kCheckpoint = 4;
constexpr int kNumeric = 6;

std::string big_endian(std::uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

std::string idx_images(std::uint32_t count, std::uint32_t side = 4) {
  return std::string("\0\0\x08\x03", 4) + big_endian(count) + big_endian(side) + big_endian(side) +
         std::string(count * side * side, '\x20');
}

std::string idx_labels(const std::string& labels) {
  return std::string("\0\0\x08\x01", 4) + big_endian(static_cast<std::uint32_t>(labels.size())) + labels;
}

/// A small data set of IDX files: 8 images for training, 4 for testing.
void write_idx(const fs::path& folder) {
  fs::create_directories(folder);
  write_file(folder / "train-images-idx3-ubyte", idx_images(8));
  write_file(folder / "train-labels-idx1-ubyte", idx_labels(std::string("\0\1\2\3\0\1\2\3", 8)));
  write_file(folder / "t10k-images-idx3-ubyte", idx_images(4));
  write_file(folder / "t10k-labels-idx1-ubyte", idx_labels(std::string("\0\1\2\3", 4)));
}

class BadInputTest : public ::testing::TestWithParam<int> {
 protected:
  std::string run_dir() const { return "--run.dir=" + folder_.path("run") + " "; }

  /// The program ends with `code` on every rank, and rank 0 alone says one sentence that holds all `parts`.
  void expect_refusal(const std::string& arguments, int code, const std::vector<std::string>& parts,
                      const std::string& environment = "") {
    const ProgramResult outcome = run_ranks(GetParam(), arguments, 60, environment);
    EXPECT_EQ(outcome.exit_code, code) << outcome.output;
    EXPECT_EQ(outcome.rank_codes, std::vector<int>(static_cast<std::size_t>(GetParam()), code)) << outcome.output;
    const std::vector<std::string> errors = testing::error_lines(outcome.output);
    ASSERT_EQ(errors.size(), 1U) << outcome.output;
    for (const std::string& part : parts)
      EXPECT_NE(errors[0].find(part), std::string::npos) << part << "\n" << outcome.output;
  }

  testing::TemporaryFolder folder_;
};

// Each of them would have no effect.
TEST_P(BadInputTest, KeysThatNothingReads) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"--optim.momentum=0.9", "optim.momentum is not read with optim.name=adamw"},
      {"--model.num_heads=5", "model.num_heads is not read with model.name=cnn"},
      {"--loss.gamma=3", "loss.gamma is not read with loss.name=auto, only with loss.name=focal"},
      {"--data.root=x", "data.root is not read with data.name=digits, only with data.name=list"},
      {"--data.output=uint8", "data.output is not read with data.name=digits"},
      {"--data.instances=2", "data.instances is not read with data.sampler=default, only with data.sampler=identity"},
      {"--strategy.stage=1", "strategy.stage is not read with strategy.name=auto, only with strategy.name=sharded"},
      {"--ema.decay=0.9", "ema.decay is not read with ema.kind=none"},
      {"--ddp.powersgd_rank=2", "ddp.powersgd_rank is not read with ddp.comm_hook=none"},
      {"--distill.alpha=0.9", "distill.alpha is not read with loss.name=auto, only with loss.name=distill"},
      {"--train.init_scale=8", "train.init_scale is not read with train.precision=fp32"}};
  for (const auto& [arguments, sentence] : cases) expect_refusal(run_dir() + arguments, kConfiguration, {sentence});
}

TEST_P(BadInputTest, UnknownKey) {
  expect_refusal(run_dir() + "--optim.rl=0.1", kConfiguration,
                 {"command line", "'optim.rl' is unknown", "did you mean 'optim.lr'"});
}

TEST_P(BadInputTest, ValueOutOfRange) {
  expect_refusal(run_dir() + "--optim.lr=-1", kConfiguration, {"optim.lr: '-1' is not a number"});
  expect_refusal(run_dir() + "--train.max_steps=0 --train.max_epochs=0", kConfiguration, {"train.max_steps"});
  expect_refusal(run_dir() + "--sched.rule=cosin", kConfiguration, {"cosin", "cosine"});
  expect_refusal(run_dir() + "--train.clip_grad=norm:1", kConfiguration, {"was replaced by train.clip_norm=1"});
  expect_refusal(run_dir() + "--train.clip_scope=group", kConfiguration, {"not read with train.clip_norm=0"});
  expect_refusal(run_dir() + "--sched.warmup=3", kConfiguration, {"sched.warmup is not read with sched.name=none"});
  expect_refusal(run_dir() + "--sched.name=cosine --sched.gamma=0.5", kConfiguration,
                 {"sched.gamma is not read with sched.name=cosine"});
  expect_refusal(run_dir() + "--sched.name=cosine --sched.rule=step,size=3", kConfiguration,
                 {"sched.rule (command line) cannot be combined with sched.name=cosine"});
  expect_refusal(run_dir() + "--data.input_keys=picture", kConfiguration,
                 {"data.input_keys", "do not contain 'picture', only 'data'"});
}

TEST_P(BadInputTest, WhatLbfgsCannotDo) {
  const std::string lbfgs = run_dir() + "--optim.name=lbfgs --optim.lr=1 ";
  for (const char* option : {"--optim.weight_decay=0.1", "--optim.maximize=true", "--optim.no_decay=norms_biases",
                             "--optim.paramwise=bias_lr_mult=2"}) {
    const std::string words = option;
    expect_refusal(lbfgs + words, kConfiguration, {words.substr(2, words.find('=') - 2), "optim.name=lbfgs"});
  }
  const std::string why = "because the closure compares";
  expect_refusal(lbfgs + "--train.clip_norm=1", kConfiguration, {"train.clip_norm", why});
  expect_refusal(lbfgs + "--train.precision=fp16", kConfiguration, {"train.precision", why});
  expect_refusal(lbfgs + "--ddp.comm_hook=powersgd", kConfiguration, {"ddp.comm_hook", why});
}

struct Misuse {
  std::string arguments;
  std::vector<std::string> parts;  // parts of the expected message
  int ranks = 1;                   // minimum number of ranks
};

TEST_P(BadInputTest, StrategiesOptimizersAndSchedules) {
  const std::vector<Misuse> rows = {
      {"--strategy.name=single", {"strategy.name", "single requires one rank, but there are"}, 2},
      {"--optim.name=rmsprop --optim.paramwise=custom:weight,centered=true --optim.paramwise=custom:bias,momentum=0.9",
       {"optim.paramwise", "different states of rule 'rmsprop'"}},
      {"--optim.name=sgd --sched.rule=constant,of=momentum,base=0.9", {"sched.rule", "sgd keeps no momentum_buffer"}},
      {"--sched.rule=constant,of=amsgrad,base=1", {"sched.rule", "amsgrad is true or false"}},
      {"--sched.rule=constant,base=-1", {"sched.rule", "lr would be -1"}},
      {"--optim.lr=1e10 --sched.rule=exponential,gamma=1e300", {"sched.rule", "lr would be inf"}},
      {"--sched.rule=cosine_restart,periods=1e-300,grow=1,floor=0", {"sched.rule", "too many waves"}},
      {"--train.precision=fp16 --train.loss_scale=1e39", {"train.loss_scale", "positive float32 number"}},
      {"--train.clip_norm=nan", {"train.clip_norm", "'nan' is not a number >= 0"}},
      {"--ema.kind=swa --ema.begin=1000", {"ema.begin", "start at step 1000, but the run ends at step 2"}},
      // Last, because it is known with an evaluation, before which the run saves a checkpoint.
      {"--sched.rule=plateau,metric=val/losses", {"plateau", "'val/losses'", "val/loss"}},
  };
  const std::string small = run_dir() + "--data.train_size=96 --data.val_size=48 --model.name=mlp --model.hidden=4 " +
                            "--train.max_epochs=1 ";
  for (const Misuse& row : rows) {
    if (row.ranks <= GetParam()) expect_refusal(small + row.arguments, kConfiguration, row.parts);
  }
}

TEST_P(BadInputTest, ConfigurationFile) {
  expect_refusal("--config=" + folder_.path("none.ini"), kConfiguration, {folder_.path("none.ini")});
  expect_refusal("--config=" + folder_.path(), kConfiguration, {folder_.path()});
  write_file(folder_ / "bad.ini", "[optim]\nlr = 0.1\nmomentum 0.9\n");
  expect_refusal("--config=" + folder_.path("bad.ini"), kConfiguration, {"bad.ini:3"});
  write_file(folder_ / "typo.ini", "[optim]\n\nlr = fast\n");
  expect_refusal("--config=" + folder_.path("typo.ini"), kConfiguration, {"typo.ini:3", "optim.lr", "'fast'"});
}

TEST_P(BadInputTest, MissingData) {
  expect_refusal(run_dir() + "--data.name=idx --data.path=" + folder_.path("nowhere"), kData,
                 {folder_.path("nowhere")});
  expect_refusal(run_dir() + "--data.name=text --model.name=gpt --data.path=" + folder_.path("nowhere.txt"), kData,
                 {"nowhere.txt"});
  expect_refusal(run_dir() + "--data.name=digit", kConfiguration, {"data.name", "'digit'", "digits"});
}

TEST_P(BadInputTest, DamagedIdx) {
  const fs::path data = folder_ / "idx";
  const std::string arguments =
      run_dir() + "--data.name=idx --model.name=mlp --train.global_batch_size=4 --data.path=" + data.string() + " ";
  write_idx(data);
  write_file(data / "train-images-idx3-ubyte", idx_images(8).substr(0, 100));
  expect_refusal(arguments, kData, {"train-images-idx3-ubyte"});

  write_idx(data);
  write_file(data / "train-labels-idx1-ubyte", idx_labels(std::string("\0\1\2\3\0\1\2\x0B", 8)));
  expect_refusal(arguments + "--data.classes=10", kData, {"train-labels-idx1-ubyte", "11", "7"});  // label, index

  write_idx(data);
  write_file(data / "t10k-images-idx3-ubyte", idx_images(4, 5));
  expect_refusal(arguments, kData, {data.string(), "1 x 4 x 4", "1 x 5 x 5"});

  write_idx(data);
  write_file(data / "train-images-idx3-ubyte", "no idx file at all");
  expect_refusal(arguments, kData, {"train-images-idx3-ubyte"});

  write_idx(data);
  expect_refusal(arguments + "--model.name=gpt", kConfiguration, {"gpt needs text"});
}

TEST_P(BadInputTest, DataSmallerThanTheGlobalBatch) {
  expect_refusal(run_dir() + "--data.train_size=20 --train.global_batch_size=48", kConfiguration, {"48", "20"});
}

TEST_P(BadInputTest, UnwritableRunDirectory) {
  write_file(folder_ / "file", "");
  expect_refusal("--run.dir=" + folder_.path("file/run"), kConfiguration, {folder_.path("file")});
}

TEST_P(BadInputTest, RunDirectoryInUse) {
  const std::string small = run_dir() + "--data.train_size=96 --train.max_steps=1 --model.name=mlp ";
  ASSERT_EQ(run_ranks(GetParam(), small).exit_code, 0);
  expect_refusal(small, kConfiguration, {"already contains a checkpoint", "--resume=auto"});
  expect_refusal(small + "--resume=auto --train.max_steps=2 --model.hidden=64", kCheckpoint,
                 {"step-000000000001", "/model/params/hidden0.weight is float32 [128, 784]"});
  expect_refusal(small + "--resume=auto --optim.name=sgd --train.max_steps=2", kCheckpoint, {"its optimizer is adamw"});
  expect_refusal(small + "--resume=7", kCheckpoint, {"resume=7"});
}

TEST_P(BadInputTest, ResumeFromNothing) {
  expect_refusal(run_dir() + "--resume=must", kCheckpoint, {"resume=must", "no checkpoint"});
  expect_refusal(run_dir() + "--resume=" + folder_.path("nothing"), kCheckpoint, {folder_.path("nothing")});
}

// Whatever is wrong with a file that is to be resumed from, the trainer returns the same code.
TEST_P(BadInputTest, AnyOtherFileIsNamedByItsFormat) {
  const auto expect = [&](const std::string& bytes, const std::vector<std::string>& parts) {
    write_file(folder_ / "file", bytes);
    expect_refusal(run_dir() + "--resume=" + folder_.path("file"), kCheckpoint, parts);
  };
  expect("", {folder_.path("file"), "the file is empty"});
  expect(std::string("\2\0\0\0\0\0\0\0{}", 10), {"it is a safetensors file", "--init.from takes its parameters"});
  expect("\x89HDF\r\n\x1A\n" + std::string(500, '\1') + "keras_version",
         {"it is an HDF5 file written by Keras", "`ckpt ls`"});
  fs::remove(folder_ / "file");
  fs::create_symlink("/etc/passwd", folder_ / "file");
  expect_refusal(run_dir() + "--resume=" + folder_.path("file"), kCheckpoint, {"it is a text file"});
}

TEST_P(BadInputTest, DamagedCheckpoint) {
  const std::string small = run_dir() + "--data.train_size=96 --model.name=mlp ";
  ASSERT_EQ(run_ranks(GetParam(), small + "--train.max_steps=1").exit_code, 0);
  const fs::path state = folder_ / "run/ckpt/step-000000000001/state.h5";
  std::string bytes = testing::read_file(state);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(state, bytes);
  expect_refusal(small + "--train.max_steps=2 --resume=auto", kCheckpoint, {"step-000000000001"});
}

TEST_P(BadInputTest, NonFiniteLossKeepsTheLastGoodCheckpoint) {
  const std::string run = run_dir() + "--data.train_size=480 --model.name=mlp ";
  ASSERT_EQ(run_ranks(GetParam(), run + "--train.max_steps=4").exit_code, 0);
  expect_refusal(run + "--resume=auto --train.max_steps=100 --optim.lr=1e30", kNumeric, {"not finite", "optim.lr"});
  EXPECT_EQ(checkpoints::list(folder_.path("run/ckpt")), (std::vector<std::int64_t>{4}));
  EXPECT_NO_THROW(checkpoints::read(folder_.path("run/ckpt/step-000000000004")));
}

// A folder in which a run failed before its first checkpoint can be used again, and tells only of the new run.
TEST_P(BadInputTest, AFailedRunLeavesNothingBehindThatMisleads) {
  const std::string run = run_dir() + "--data.train_size=480 --model.name=mlp --train.max_steps=20 --log.every=1 ";
  expect_refusal(run + "--optim.lr=1e30", kNumeric, {"not finite"});
  EXPECT_TRUE(fs::exists(folder_ / "run/failure.json"));
  ASSERT_EQ(run_ranks(GetParam(), run).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder_ / "run/failure.json"));
  const auto losses = report::read_series(folder_.path("run/metrics.jsonl"), "loss");
  ASSERT_EQ(losses.size(), 20U);
  EXPECT_EQ(losses.front().first, 1);
}

TEST_P(BadInputTest, BackendThatCannotServe) {
  if (GetParam() > 1) {
    expect_refusal(run_dir() + "--comm.backend=self", kConfiguration, {"comm.backend", "self"});
    expect_refusal(run_dir() + "--train.global_batch_size=1", kConfiguration, {"train.global_batch_size"});
  }
  expect_refusal(run_dir() + "--comm.backend=nccl", kConfiguration, {"nccl"});
}

// Two programs that do not know of each other: srun without an MPI plug-in.
TEST_P(BadInputTest, TasksThatMpiDoesNotSee) {
  if (GetParam() > 1) GTEST_SKIP() << "mpirun joins them";
  const ProgramResult outcome = testing::run_shell(
      "env -u OMPI_COMM_WORLD_LOCAL_SIZE SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_STEP_ID=0 "
      "SLURM_JOB_ID=1 " +
      testing::trainer_program() + " " + run_dir());
  EXPECT_EQ(outcome.exit_code, kConfiguration) << outcome.output;
  EXPECT_NE(outcome.output.find("srun --mpi=pmix"), std::string::npos) << outcome.output;
}

// Case 106. The peers of a rank that fails alone do not wait for their own deadline, which is minutes away.
TEST(FragileDataTest, WhatOneRankCannotReadEndsTheJobAtOnce) {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  const std::string program = std::string(binaries != nullptr ? binaries : ".") + "/tests/system/user_program";
  for (const int workers : {0, 1}) {
    const testing::TemporaryFolder folder;
    const ProgramResult outcome = testing::run_shell(
        testing::mpirun_command(3) + " " + program + " --data.name=fragile --data.workers=" + std::to_string(workers) +
        " --data.path=" + folder.path("failed") + " --model.name=mlp --train.max_steps=100000" +
        " --run.dir=" + folder.path("run") + "; code=$?; touch " + folder.path("ended") + "; exit $code");
    EXPECT_EQ(outcome.exit_code, kData) << outcome.output;
    EXPECT_NE(outcome.output.find("r1/3"), std::string::npos) << outcome.output;
    EXPECT_NE(outcome.output.find("shard 1: cannot be read any more"), std::string::npos) << outcome.output;
    const auto took = fs::last_write_time(folder / "ended") - fs::last_write_time(folder / "failed");
    EXPECT_LT(std::chrono::duration<double>(took).count(), 3.0) << outcome.output;
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, BadInputTest, ::testing::Values(1, 2),
                         [](const auto& test) { return "np" + std::to_string(test.param); });

}  // namespace bad_input_test
}  // namespace lockstep
