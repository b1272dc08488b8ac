// SPDX-License-Identifier: BSD-3-Clause
// A user's program that sets a locale with a decimal comma writes and reads the same numbers.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace locale_test {

namespace fs = std::filesystem;
using testing::ProgramResult;

std::string user_program() {
  const char* const binaries = std::getenv("LOCKSTEP_BINARY_DIR");
  return std::string(binaries != nullptr ? binaries : ".") + "/tests/system/user_program";
}

class LocaleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string name : {"a", "b"}) {
      fs::create_directories(folder_ / ("images/" + name));
      for (int k = 0; k < 4; ++k) {
        std::string pixels;
        for (int i = 0; i < 1024; ++i)
          pixels += {static_cast<char>(name == "a" ? 200 : 20), static_cast<char>(40 * k), 'Z'};
        folder_.write("images/" + name + "/" + std::to_string(k) + ".ppm", "P6 32 32 255\n" + pixels);
      }
    }
  }

  std::string run(const std::string& locale, const std::string& arguments) const {
    const std::string environment = locale.empty() ? "" : "LOCKSTEP_TEST_LOCALE=" + locale + " ";
    const ProgramResult outcome =
        testing::run_shell("LOCPATH=" + folder_.path("locales") + " " + environment + testing::mpirun_command(1) + " " +
                           user_program() + " " + arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  }

  /// The files that a training, an evaluation and predictions write.
  std::string results(const std::string& locale) const {
    const std::string folder = folder_.path("run_" + locale);
    run(locale,
        "--data.name=folder --data.cache=off --data.augmentation=timm_a1 --data.image_size=32 --model.name=resnet18 "
        "--model.width=8 --train.max_steps=3 --train.global_batch_size=4 --optim.lr=0.0125 --eval.every=1 "
        "--eval.split=train --data.path=" +
            folder_.path("images") + " --run.dir=" + folder);
    std::string all = testing::read_file(folder + "/summary.csv");
    EXPECT_NE(all.find("0."), std::string::npos);
    for (const std::string ending : {"jsonl", "csv"}) {
      const std::string out = folder + "/predictions." + ending;
      run(locale, "predict --from " + folder + " --predict.out=" + out);
      all += testing::read_file(out);
    }
    const std::string evaluated = run(locale, "eval --from " + folder);
    return all + evaluated.substr(evaluated.find("val/loss"), evaluated.find(" from ") - evaluated.find("val/loss"));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(LocaleTest, ADecimalCommaOfTheCppLocaleChangesNothing) { EXPECT_EQ(results("cpp"), results("")); }

TEST_F(LocaleTest, ADecimalCommaOfTheCLocaleChangesNothing) {
  fs::create_directories(folder_ / "locales");
  const ProgramResult made =
      testing::run_shell("localedef -i de_DE -f UTF-8 " + folder_.path("locales/de_DE.UTF-8") + " 2>&1");
  if (made.exit_code != 0) GTEST_SKIP() << "localedef cannot make de_DE.UTF-8: " << made.output;
  EXPECT_EQ(results("de_DE.UTF-8"), results(""));
}

}  // namespace locale_test
}  // namespace lockstep
