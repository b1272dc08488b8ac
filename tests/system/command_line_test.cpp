// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "core/numbers/processor_level.hpp"
#include "core/system/process.hpp"
#include "support/program.hpp"

namespace lockstep {
namespace command_line_test {

using testing::ProgramResult;
using testing::run_ranks;

std::string source_file(const std::string& name) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return testing::read_file(std::string(source != nullptr ? source : ".") + "/" + name);
}

// The command line is an interface that scripts rely on. When a key changes on purpose, store the new text:
//   build/trainer config > tests/system/golden/config.txt
TEST(CommandLineTest, TheKeysAndDefaultsAreThoseOfTheStoredTable) {
  const ProgramResult outcome = testing::run_shell(testing::trainer_program() + " config");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.output, source_file("tests/system/golden/config.txt"));
}

TEST(CommandLineTest, HelpNamesCommandsSectionsAndExitCodesOnce) {
  const ProgramResult outcome = run_ranks(2, "--help");
  EXPECT_EQ(outcome.rank_codes, (std::vector<int>{0, 0}));
  for (const char* word : {"train", "eval", "config", "optim", "Exit codes"}) {
    EXPECT_NE(outcome.output.find(word), std::string::npos) << word;
  }
  const std::size_t first = outcome.output.find("eval");
  EXPECT_NE(first, std::string::npos);
  const ProgramResult section = run_ranks(1, "--help=optim");
  EXPECT_NE(section.output.find("\n  adamw      Adam with decoupled weight decay\n"), std::string::npos)
      << section.output;
  EXPECT_EQ(section.output.find("optim.momentum"), std::string::npos) << section.output;
  const ProgramResult choice = run_ranks(1, "--help=optim.sgd");
  EXPECT_NE(choice.output.find("\n  --optim.momentum "), std::string::npos) << choice.output;
  EXPECT_EQ(choice.output.find("optim.betas"), std::string::npos) << choice.output;
  EXPECT_EQ(run_ranks(1, "--help=optin").exit_code, 2);
  const std::string versions = run_ranks(1, "--version", 60, "LOCKSTEP_CPU=generic").output;
  EXPECT_TRUE(versions.starts_with("lockstep " + version() + "\n")) << versions;
  for (const char* part : {"MPI", "\nlibtorch ", "\nhdf5 ", "\nprocessor_level generic\n",
                           "\nATEN_CPU_CAPABILITY=default\n", "\nONEDNN_MAX_CPU_ISA="}) {
    EXPECT_NE(versions.find(part), std::string::npos) << part << " is missing in: " << versions;
  }
  const std::string own = run_ranks(1, "--version", 60, "LOCKSTEP_CPU=generic ATEN_CPU_CAPABILITY=avx2").output;
  EXPECT_NE(own.find("\nATEN_CPU_CAPABILITY=avx2\n"), std::string::npos) << own;
  const auto refused = run_ranks(1, "--version", 60, "LOCKSTEP_CPU=fast");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.output.find("LOCKSTEP_CPU=fast is unknown. Choose one of: generic"), std::string::npos)
      << refused.output;
}

TEST(CommandLineTest, ConfigRefusesWhatTrainingRefuses) {
  const testing::TemporaryFolder folder;
  for (const char* refused :
       {"--ckpt.every=often", "--log.every=never", "--ema.kind=ema --ema.begin=soon",
        "--train.max_steps=0 --train.max_epochs=0", "--train.clip_norm=1 --train.clip_value=1", "--train.loss_scale=8",
        "--train.hooks=memory,every=often", "--train.time_limit=5min", "--model.name=mpl", "--loss.name=cross",
        "--optim.name=sdg", "--data.name=digit", "--eval.metrics=top,k=1", "--train.metrics=accuracy,kk=1",
        "--train.hooks=memry", "--sched.rule=lienar"}) {
    const ProgramResult config = run_ranks(1, "config " + std::string(refused));
    const ProgramResult training = run_ranks(2, std::string(refused) + " --run.dir=" + folder.path("run"));
    EXPECT_EQ(config.exit_code, 2) << refused;
    EXPECT_EQ(training.exit_code, 2) << refused;
    const auto sentence = [](const std::string& output) {
      const std::size_t begin = output.find(' ', output.find(" error r0/") + 8);
      return output.substr(begin, output.find('\n', begin) - begin);
    };
    ASSERT_NE(config.output.find(" error r0/1 "), std::string::npos) << refused << ": " << config.output;
    EXPECT_EQ(sentence(config.output), sentence(training.output));
    EXPECT_FALSE(std::filesystem::exists(folder / "run")) << refused;
  }
}

/// The words that bash offers for the last word of a line.
std::string completed(const std::string& line) {
  return testing::run_shell("bash -c 'source <(" + testing::trainer_program() + " completion bash); COMP_LINE=\"" +
                            line +
                            "\"; COMP_POINT=${#COMP_LINE}; COMP_WORDS=($COMP_LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - "
                            "1)); _lockstep_trainer 2> /dev/null; echo ${COMPREPLY[@]}'")
      .output;
}

TEST(CommandLineTest, TheShellCompletesCommandsKeysAndValues) {
  EXPECT_EQ(completed("trainer sche"), "schedule\n");
  EXPECT_EQ(completed("trainer --sched.mil"), "--sched.milestones=\n");
  EXPECT_EQ(completed("trainer train --optim.name=ad"), "adam adamw adagrad adadelta adamax adafactor\n");
  EXPECT_EQ(completed("trainer --run.cuda_graphs=t"), "true\n");
  EXPECT_EQ(completed("trainer data --list"), "--list-transforms\n");
  EXPECT_EQ(completed("trainer --data.path=/"), "\n");  // bash completes files itself
  EXPECT_EQ(run_ranks(1, "completion fish").exit_code, 2);
  EXPECT_NE(run_ranks(1, "completion zsh").output.find("bashcompinit"), std::string::npos);
}

TEST(CommandLineTest, CkptNamesTheLevelAndRefusesOthers) {
  const auto ckpt = [](const std::string& level, const std::string& arguments) {
    return testing::run_shell("LOCKSTEP_CPU=" + level + " " + testing::ckpt_program() + " " + arguments);
  };
  const ProgramResult printed = ckpt("generic", "--version");
  EXPECT_EQ(printed.exit_code, 0);
  EXPECT_EQ(printed.output, "ckpt " + version() + "\nprocessor_level generic\n");
  for (const char* arguments : {"--version", "ls /nowhere"}) {
    const ProgramResult refused = ckpt("fast", arguments);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_TRUE(refused.output.starts_with("ckpt: LOCKSTEP_CPU=fast is unknown. Choose one of: generic"))
        << refused.output;
  }
}

TEST(CommandLineTest, RanksWithDifferentProcessorLevels) {
  if (machine_level() == ProcessorLevel::generic) GTEST_SKIP() << "this machine has the level generic only";
  const testing::TemporaryFolder folder;
  const auto train = [&](const std::string& arguments) {
    return testing::run_shell(
        testing::mpirun_command(2) +
        " sh -c '[ ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 0 ] || export LOCKSTEP_CPU=generic; exec " + "\"$@\"' sh " +
        testing::trainer_program() + " --train.max_steps=1 --data.train_size=96 " + "--run.dir=" + folder.path("run") +
        " " + arguments);
  };
  const std::string fact = "rank 0 uses the processor level " + std::string(name_of(machine_level())) +
                           ", but rank 1 uses generic. Set LOCKSTEP_CPU to the lower level on all ranks";
  const ProgramResult refused = train("--train.lanes=2");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("train.lanes requires one processor level"), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find(fact), std::string::npos) << refused.output;
  const ProgramResult warned = train("");
  EXPECT_EQ(warned.exit_code, 0) << warned.output;
  EXPECT_NE(warned.output.find(fact), std::string::npos) << warned.output;
}

TEST(CommandLineTest, ConfigSaysWhereAValueCameFrom) {
  const testing::TemporaryFolder folder;
  testing::write_file(folder / "a.ini", "[optim]\nlr = 0.25\neps = 0.5\n");
  const ProgramResult outcome = run_ranks(1, "config --config=" + folder.path("a.ini") + " --optim.lr=0.5");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("a.ini:3"), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("command line"), std::string::npos) << outcome.output;
}

/// The text from the first place of `text` to the end of its line; "" if it occurs nowhere.
std::string line_of(const std::string& table, const std::string& text) {
  const std::size_t position = table.find(text);
  return position == std::string::npos ? "" : table.substr(position, table.find('\n', position) - position);
}

TEST(CommandLineTest, ConfigShowsTheLinesOfAnAugmentation) {
  const ProgramResult outcome = run_ranks(1,
                                          "config --data.name=synthetic --data.augmentation=torchvision2 "
                                          "--data.image_size=112 --train.mix=mixup,alpha=0.5");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* text : {"random_resized_crop,size=88", "trivial_augment_wide,filter=bilinear",
                           "random_erasing,p=0.1", "resize,size=116", "center_crop,size=112"}) {
    EXPECT_NE(line_of(outcome.output, text), "") << text;
  }
  EXPECT_NE(line_of(outcome.output, "random_erasing,p=0.1").find("data.augmentation = torchvision2"),
            std::string::npos);
  EXPECT_NE(line_of(outcome.output, "loss.label_smoothing").find("default"), std::string::npos) << outcome.output;
  // A setting that is set stays.
  EXPECT_EQ(outcome.output.find("cutmix,alpha=1"), std::string::npos) << outcome.output;
  EXPECT_NE(line_of(outcome.output, "train.mix ").find("mixup,alpha=0.5"), std::string::npos) << outcome.output;
  EXPECT_EQ(run_ranks(1, "config --data.augmentation=imagenets").exit_code, 2);
}

TEST(CommandLineTest, ConfigShowsTheDerivedTransformsOfEvaluations) {
  const std::string images = "config --data.name=synthetic --data.transform=random_resized_crop,size=112 ";
  const ProgramResult derived = run_ranks(1, images + "--data.transform=horizontal_flip");
  EXPECT_EQ(derived.exit_code, 0) << derived.output;
  const std::string resize = line_of(derived.output, "resize,size=128");
  EXPECT_NE(resize.find("derived from data.transform (command line)"), std::string::npos) << derived.output;
  EXPECT_NE(line_of(derived.output, "center_crop,size=112"), "") << derived.output;
  const ProgramResult given = run_ranks(1, images + "--data.val_transform=resize,size=64");
  EXPECT_EQ(line_of(given.output, "center_crop,size=112"), "") << given.output;
}

TEST(CommandLineTest, APathWithoutASourceIsRefused) {
  const ProgramResult outcome = run_ranks(1, "config --data.path=photos");
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  EXPECT_NE(outcome.output.find("data.path is not read with data.name=digits; remove it, or change data.name"),
            std::string::npos)
      << outcome.output;
}

std::string user_program() {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/tests/system/user_program";
}

TEST(CommandLineTest, AUsersProgramBringsItsOwnModelAndKey) {
  const testing::TemporaryFolder folder;
  const std::string run =
      testing::mpirun_command(2) + " " + user_program() + " --model.name=scaled --data.train_size=96";
  const ProgramResult fine = testing::run_shell(run + " --train.max_epochs=1 --run.dir=" + folder.path("run"));
  EXPECT_EQ(fine.exit_code, 0) << fine.output;
  const ProgramResult refused = testing::run_shell(run + " --model.scale=big --run.dir=" + folder.path("other"));
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("model.scale: 'big' is not a number"), std::string::npos) << refused.output;
  EXPECT_EQ(run_ranks(1, "--model.name=scaled --run.dir=" + folder.path("plain")).exit_code, 2);
}

// Users write the new name; the old one in the configuration that a checkpoint holds is translated.
TEST(CommandLineTest, AnOldNameOfAKeyIsForCheckpointsAlone) {
  const testing::TemporaryFolder folder;
  const std::string program = testing::mpirun_command(1) + " " + user_program();
  const ProgramResult older = testing::run_shell("OLDER_PROGRAM=1 " + program +
                                                 " --model.name=scaled --model.factor=0.5 --data.train_size=96"
                                                 " --data.val_size=32 --train.max_epochs=1 --run.dir=" +
                                                 folder.path("run"));
  EXPECT_EQ(older.exit_code, 0) << older.output;
  const ProgramResult evaluated = testing::run_shell(program + " eval --from " + folder.path("run"));
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.output;
  EXPECT_NE(evaluated.output.find("val/count 32"), std::string::npos) << evaluated.output;
  const ProgramResult refused = testing::run_shell(program + " config --model.factor=0.5");
  EXPECT_EQ(refused.exit_code, 2) << refused.output;
  EXPECT_NE(refused.output.find("key 'model.factor' was renamed to 'model.scale'"), std::string::npos)
      << refused.output;
}

TEST(CommandLineTest, AbbreviationsAreNotGuessed) {
  EXPECT_EQ(run_ranks(1, "--optim.momen=0.5").exit_code, 2);
  EXPECT_EQ(run_ranks(1, "--ver").exit_code, 2);
  EXPECT_EQ(run_ranks(1, "trian").exit_code, 2);
}

}  // namespace command_line_test
}  // namespace lockstep
