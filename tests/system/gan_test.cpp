// SPDX-License-Identifier: BSD-3-Clause
// Two optimizers with steps of their own, in a user's program.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace lockstep {
namespace gan_test {

using testing::Outcome;
using testing::TemporaryFolder;

struct Case {
  int ranks;
  std::string precision;
};

std::vector<std::string> lines_with(const std::string& text, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    if (line.find(word) != std::string::npos) lines.push_back(line);
  }
  return lines;
}

class GanTest : public ::testing::TestWithParam<Case> {
 protected:
  std::string train(const std::string& folder, int steps) const {
    const Outcome outcome = testing::run_shell(testing::mpirun_command(GetParam().ranks) + " '" GAN_PROGRAM "' '" +
                                               folder + "' " + std::to_string(steps) + " " + GetParam().precision);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
    return outcome.output;
  }
};

// The losses of every step after the restart, and every byte of the checkpoint at the end.
TEST_P(GanTest, ContinuesBitForBit) {
  const TemporaryFolder folder;
  const std::vector<std::string> whole = lines_with(train(folder.path() + "/whole", 24), "losses");
  ASSERT_EQ(whole.size(), 24U);
  const std::string parts = folder.path() + "/parts";
  EXPECT_EQ(lines_with(train(parts, 9), "losses").size(), 9U);
  EXPECT_EQ(lines_with(train(parts, 24), "losses"), std::vector<std::string>(whole.begin() + 9, whole.end()));
  const Outcome diff = testing::run_shell(testing::ckpt_program() + " diff --bitwise " + folder.path() +
                                          "/whole/step-000000000024 " + parts + "/step-000000000024");
  EXPECT_EQ(diff.exit_code, 0) << diff.output;
}

// Digits are far from what an untrained generator makes: the discriminator knows them soon.
TEST_P(GanTest, TheDiscriminatorLearns) {
  const TemporaryFolder folder;
  const std::string said = train(folder.path(), 60);
  const std::vector<std::string> result = lines_with(said, "predicted as real: ");
  ASSERT_EQ(result.size(), 1U) << said;
  EXPECT_GT(std::atof(result[0].substr(result[0].rfind(' ')).c_str()), 0.9) << said;
}

INSTANTIATE_TEST_SUITE_P(Runs, GanTest, ::testing::Values(Case{1, ""}, Case{2, ""}, Case{2, "fp16"}),
                         [](const auto& test) {
                           return std::to_string(test.param.ranks) + "Ranks" + test.param.precision;
                         });

}  // namespace gan_test
}  // namespace lockstep
