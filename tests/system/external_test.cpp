// SPDX-License-Identifier: BSD-3-Clause
// Projects outside of this one: tests/external, built against an installed prefix and against the build tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace lockstep {
namespace external_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : ".";
}

/// The tests with what `cmake --install` wrote, once for all tests.
class ExternalTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder;
    // So that ccache, where there is one, knows the folder again by another name.
    setenv("CCACHE_BASEDIR", folder_->path().c_str(), 1);
    setenv("CCACHE_NOHASHDIR", "true", 1);
    const ProgramResult installed = testing::run_shell("cmake --install " + kBuild + " --prefix " + prefix(), 300);
    ASSERT_EQ(installed.exit_code, 0) << installed.output;
  }
  static void TearDownTestSuite() { delete folder_; }

  static std::string prefix() { return folder_->path("prefix"); }
  static std::string path(const std::string& name) { return folder_->path(name); }

  /// A folder with what tests/external has, and nothing else.
  static std::string copy_of_project(const std::string& name) {
    fs::copy(kSource + "/tests/external", path(name), fs::copy_options::recursive);
    return path(name);
  }
  static ProgramResult succeed(const std::string& command, double limit_s = 900) {
    const ProgramResult outcome = testing::run_shell(command, limit_s);
    EXPECT_EQ(outcome.exit_code, 0) << command << "\n" << outcome.output;
    return outcome;
  }

  /// Trains the program's own model on its own data by its own step, and looks at its keys.
  static void expect_trains(const std::string& program) {
    expect_keys(program, "model", {"model.bumps"});
    expect_keys(program, "data", {"data.corners"});
    expect_keys(program, "train", {"train.penalty", "train.hooks, lowest_loss"});
    const std::string run = program + "_run";
    succeed(testing::mpirun_command(2) + " " + program + options(run));
    const std::string found = evaluation(program, run);
    // A line tells three quarters of the points apart at best, a guess half of them.
    EXPECT_GT(value_in(found, "val/accuracy "), 0.85);
    EXPECT_LT(value_in(found, "val/loss "), 0.5);
    expect_lowest_losses(run);
    // If the penalty is all that counts, scores stay at 0, and the loss at ln 2: it is this step that trains.
    const std::string other = program + "_penalized";
    succeed(testing::mpirun_command(2) + " " + program + options(other) + " --train.penalty=1e4");
    EXPECT_GT(value_in(evaluation(program, other), "val/loss "), 0.6);
    const std::string twice = program + "_twice";
    succeed(testing::mpirun_command(2) + " " + program + options(twice) + " --train.step_kind=calm_twice");
    EXPECT_NEAR(value_in(evaluation(program, twice), "val/loss "), value_in(found, "val/loss "), 0.02);
    expect_two_heads(program);
    expect_table(program);
    const ProgramResult refused = testing::run_shell(program + " --model.bumps=0");
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
  }

  /// Two inputs, two targets and two heads, whose data have a part "test" and no "val".
  static void expect_two_heads(const std::string& program) {
    const std::string run = program + "_two_heads";
    const std::string settings =
        " --data.name=places --model.name=two_heads --train.max_epochs=20 --optim.name=adam "
        "--optim.lr=0.02 --train.global_batch_size=32 --run.dir=" +
        run;
    const std::string meters =
        " --eval.metrics=top_k,k=1,output=corner,target=corner"
        " --eval.metrics=regression,output=distance,target=distance,classes=1";
    const ProgramResult refused = testing::run_shell(program + settings);
    EXPECT_EQ(refused.exit_code, 2) << refused.output;
    EXPECT_NE(refused.output.find("the data source has no split 'val'; choose another one, such as train, test"),
              std::string::npos)
        << refused.output;
    succeed(testing::mpirun_command(2) + " " + program + settings + meters + " --eval.split=test");
    const std::string file = run + "/predictions.jsonl";
    const std::string found =
        succeed(testing::mpirun_command(2) + " " + program + " eval --from=" + run + " --predictions=" + file).output;
    EXPECT_GT(value_in(found, "val/top_1_accuracy "), 0.85);
    EXPECT_LT(value_in(found, "val/rmse "), 0.3);
    std::ifstream lines(file);
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      EXPECT_TRUE(line.starts_with("{\"index\":" + std::to_string(count) + ",\"corner\":")) << line;
      EXPECT_NE(line.find("\"name\":\"place " + std::to_string(count) + "\""), std::string::npos) << line;
    }
    EXPECT_EQ(count, 128);
  }

  /// A plane over inputs of very different units. Its deviation is about 500, so that a guess has this error.
  static void expect_table(const std::string& program) {
    const std::string file = program + "_table.csv";
    std::ofstream table(file);
    table << "length,mass,price\n";
    for (int i = 0; i < 400; ++i) {
      const double length = 0.001 * (i * 37 % 101), mass = 10000 + i * 53 % 211;
      table << length << "," << mass << "," << 3000 + 15000 * length + 3 * (mass - 10000) << "\n";
    }
    table.close();
    const std::string settings =
        " --data.name=table --data.column=price --model.name=mlp --model.hidden=32 "
        "--model.standardize=true --train.max_epochs=40 --train.global_batch_size=32 "
        "--optim.name=adam --optim.lr=0.01 --run.dir=" +
        program + "_table ";
    succeed(testing::mpirun_command(2) + " " + program + settings + "--data.table=" + file);
    EXPECT_LT(value_in(evaluation(program, program + "_table"), "val/rmse "), 50);
    std::filesystem::remove_all(program + "_table");
    testing::write_file(file, "length,price\n1,2\n1,x\n");
    const ProgramResult refused =
        testing::run_shell(testing::mpirun_command(2) + " " + program + settings + "--data.table=" + file);
    EXPECT_EQ(refused.exit_code, 3) << refused.output;
    EXPECT_NE(refused.output.find("line 3, column price: 'x' is not a number"), std::string::npos) << refused.output;
  }

  /// The values that the program's hook measured: in each line of the log no more than the loss, nor than in the line
  /// before.
  static void expect_lowest_losses(const std::string& run) {
    std::ifstream lines(run + "/metrics.jsonl");
    double before = std::numeric_limits<double>::infinity();
    int count = 0;
    for (std::string line; std::getline(lines, line);) {
      const std::optional<double> lowest = number_in(line, "\"lowest_loss\":");
      if (!lowest) continue;
      ++count;
      EXPECT_LE(*lowest, std::min(before, number_in(line, "\"loss\":").value_or(0))) << line;
      before = *lowest;
    }
    EXPECT_GE(count, 10) << run;
  }
  static std::optional<double> number_in(const std::string& line, const std::string& name) {
    const std::size_t place = line.find(name);
    if (place == std::string::npos) return std::nullopt;
    return std::strtod(line.c_str() + place + name.size(), nullptr);
  }

  static std::string options(const std::string& run) {
    return " --data.name=corners --model.name=bumps --train.step_kind=calm --train.hooks=lowest_loss "
           "--train.global_batch_size=32 --train.max_epochs=20 --optim.name=adam --optim.lr=0.02 --run.dir=" +
           run;
  }
  static void expect_keys(const std::string& program, const std::string& section,
                          const std::vector<std::string>& keys) {
    const ProgramResult help = succeed(program + " --help=" + section + ".all");
    for (const std::string& key : keys) EXPECT_NE(help.output.find(key), std::string::npos) << help.output;
  }

  static std::string evaluation(const std::string& program, const std::string& run) {
    return succeed(program + " eval --from=" + run).output;
  }
  /// The number that `eval` printed behind `name`.
  static double value_in(const std::string& text, const std::string& name) {
    const std::size_t place = text.find(name);
    EXPECT_NE(place, std::string::npos) << text;
    return place == std::string::npos ? 0 : std::strtod(text.c_str() + place + name.size(), nullptr);
  }

  inline static const std::string kSource = variable("LOCKSTEP_SOURCE_DIR");
  inline static const std::string kBuild = variable("LOCKSTEP_BINARY_DIR");

 private:
  inline static testing::TemporaryFolder* folder_ = nullptr;
};

std::string configure(const std::string& project, const std::string& options) {
  // No optimization: most of a build's time, and nothing here needs it.
  return "cmake -S " + project + " -B " + project + "/build -DCMAKE_CXX_FLAGS=-O0 " + options +
         " -DCMAKE_CXX_COMPILER_LAUNCHER=$(command -v ccache)";
}

TEST_F(ExternalTest, ManualPagesAreInstalled) {
  for (const std::string name : {"trainer", "ckpt"}) {
    const std::string page = testing::read_file(prefix() + "/share/man/man1/" + name + ".1");
    EXPECT_NE(page.find(name + " \\- "), std::string::npos) << page;
    EXPECT_NE(page.find("\n.SH \"Commands"), std::string::npos) << page;
    EXPECT_EQ(page.find(".\"\n.nf"), std::string::npos) << "a sentence is a heading: " << page;
  }
  const std::string trainer = testing::read_file(prefix() + "/share/man/man1/trainer.1");
  EXPECT_NE(trainer.find("\n  \\-\\-optim.lr "), std::string::npos) << "the keys of every section";
  const std::string ckpt = testing::read_file(prefix() + "/share/man/man1/ckpt.1");
  EXPECT_NE(ckpt.find("\n.SH \"ckpt convert\"\n"), std::string::npos) << "the options of every command";
}

TEST_F(ExternalTest, APrefixHasWhatAUserNeeds) {
  for (const char* name : {"bin/trainer", "bin/ckpt", "include/lockstep/engine/registry.hpp", "lib/liblockstep_core.a",
                           "lib/cmake/Lockstep/LockstepConfig.cmake", "share/lockstep/Makefile.inc",
                           "share/lockstep/lockstep.mk", "share/lockstep/configs/digits.ini", "lib/liblockstep.so",
                           "include/lockstep/lockstep.h", "share/lockstep/lockstep.F90"}) {
    EXPECT_TRUE(fs::exists(prefix() + "/" + name)) << name;
  }
  EXPECT_EQ(fs::exists(kBuild + "/lockstep_gpu.so"), fs::exists(prefix() + "/lib/lockstep_gpu.so"));
  EXPECT_EQ(testing::run_shell("find " + prefix() + " -name '*fake*'; grep -rl fake_gpu " + prefix()).output, "");
  for (const auto& entry : fs::recursive_directory_iterator(prefix() + "/include")) {
    const fs::path extension = entry.path().extension();
    EXPECT_TRUE(entry.is_directory() || extension == ".hpp" || extension == ".h") << entry.path();
  }
}

TEST_F(ExternalTest, InstalledProgramsRun) {
  const std::string trainer = prefix() + "/bin/trainer";
  succeed(testing::mpirun_command(2) + " " + trainer + " train --config=" + prefix() +
          "/share/lockstep/configs/digits.ini --data.train_size=128 --train.max_epochs=1 --run.dir=" + path("run"));
  EXPECT_NE(succeed(prefix() + "/bin/ckpt ls " + path("run") + "/ckpt").output.find("step"), std::string::npos);
}

// An installed prefix may be moved, and knows nothing of the clone.
TEST_F(ExternalTest, AProjectFindsTheInstalledPackage) {
  const std::string moved = path("moved");
  fs::rename(prefix(), moved);
  const std::string project = copy_of_project("of_cmake");
  succeed(configure(project, "-DCMAKE_PREFIX_PATH=" + moved));
  succeed("cmake --build " + project + "/build");
  expect_trains(project + "/build/corners");
  const ProgramResult mentions = testing::run_shell("grep -rlF " + kSource + "/ " + moved + "/lib/cmake " + moved +
                                                    "/share " + moved + "/include");
  EXPECT_EQ(mentions.output, "");
  fs::rename(moved, prefix());
}

/// The words of pkg-config for the library.
std::string pkg_config(const std::string& prefix, const std::string& words) {
  return "$(PKG_CONFIG_PATH=" + prefix + "/lib/pkgconfig pkg-config " + words + " lockstep)";
}

TEST_F(ExternalTest, ACompilerFindsTheLibraryByPkgConfig) {
  const std::string program = path("c_caller");
  succeed("mpicc -std=c99 " + pkg_config(prefix(), "--cflags") + " " + kSource + "/tests/system/c_caller.c -o " +
          program + " " + pkg_config(prefix(), "--libs") + " -lm");
  EXPECT_EQ(succeed(program + " quiet").output, "");
  EXPECT_EQ(testing::run_shell("readelf -d " + program + " | grep -c torch").output, "0\n");
  if (testing::run_shell("command -v mpifort").exit_code != 0) GTEST_SKIP() << "there is no Fortran compiler";
  fs::create_directories(path("fortran"));
  succeed("cd " + path("fortran") + " && mpifort " + pkg_config(prefix(), "--variable=module") + " " + kSource +
          "/examples/heat.F90 -o heat " + pkg_config(prefix(), "--libs"));
  // The form for mpi_f08 compiles, too.
  succeed("cd " + path("fortran") + " && mpifort -DLOCKSTEP_MPI_F08 -c " + pkg_config(prefix(), "--variable=module") +
          " -o f08.o");
  const std::string heat = path("fortran") + "/heat " + path("heat_run") + " 50";
  EXPECT_NE(succeed(testing::mpirun_command(2) + " " + heat).output.find("relative error"), std::string::npos);
}

TEST_F(ExternalTest, TheExamplesAreAProjectOfTheirOwn) {
  fs::copy(kSource + "/examples", path("examples"), fs::copy_options::recursive);
  succeed(configure(path("examples"), "-DCMAKE_PREFIX_PATH=" + prefix()));
  succeed("cmake --build " + path("examples") + "/build");
  const ProgramResult served = testing::run_shell(path("examples") + "/build/serve /nowhere < /dev/null");
  EXPECT_EQ(served.output, "serve: /nowhere: does not exist\n");
}

TEST_F(ExternalTest, AProjectFindsTheBuildTree) {
  const std::string project = copy_of_project("of_build_tree");
  succeed(configure(project, "-DLockstep_DIR=" + kBuild));
  succeed("cmake --build " + project + "/build");
  expect_keys(project + "/build/corners", "model", {"model.bumps"});
}

TEST_F(ExternalTest, AMakefileUsesTheCloneOrAPrefix) {
  const std::string project = copy_of_project("of_make");
  succeed("make -C " + project + " LOCKSTEP=" + kSource + " LOCKSTEP_CXXFLAGS='-std=c++20 -O0'" +
          " LOCKSTEP_CXX=\"$(command -v ccache) c++\"");
  expect_trains(project + "/corners");
  // The object file serves there, too: the headers are the same.
  fs::remove(project + "/corners");
  const std::string make = "make -C " + project + " LOCKSTEP=" + prefix() + "/share/lockstep";
  succeed(make);
  expect_keys(project + "/corners", "model", {"model.bumps"});
  const ProgramResult compiles = succeed(make + " -n -B");
  EXPECT_NE(compiles.output.find("-I" + prefix() + "/include"), std::string::npos) << compiles.output;
  EXPECT_EQ(compiles.output.find(kSource + "/"), std::string::npos) << compiles.output;
}

TEST_F(ExternalTest, AnotherLibTorchIsRefused) {
  const std::string torch = path("torch");
  for (const char* folder : {"/lib", "/include/torch/headeronly"}) fs::create_directories(torch + folder);
  for (const char* library : {"/lib/libtorch_cpu.so", "/lib/libc10.so"}) std::ofstream(torch + library) << "";
  testing::write_file(torch + "/include/torch/headeronly/version.h",
                      "#define TORCH_VERSION_MAJOR 9\n#define TORCH_VERSION_MINOR 1\n");
  const std::string project = copy_of_project("of_other_torch");
  const ProgramResult refused =
      testing::run_shell(configure(project, "-DCMAKE_PREFIX_PATH=" + prefix() + " -DLOCKSTEP_TORCH_DIR=" + torch));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.output.find("Lockstep was built with LibTorch 2.11"), std::string::npos) << refused.output;
}

}  // namespace external_test
}  // namespace lockstep
