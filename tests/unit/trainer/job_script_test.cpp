// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/job_script.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace lockstep::trainer {
namespace job_script_test {

std::string commands_of(const std::string& script) { return script.substr(script.find("\nset -uo pipefail")); }

TEST(JobScriptTest, StatesTheNumbersOfTheJob) {
  const std::string script = slurm_script({.ranks = 12,
                                           .hosts = 3,
                                           .cpus = 2,
                                           .time_s = 90061,
                                           .save_s = 100,
                                           .memory_bytes = 3.0 * 1024 * 1024 * 1024,
                                           .arguments = {"--config=my file.ini", "--optim.lr=0.1"}});
  for (const char* line :
       {"#SBATCH --ntasks=12\n", "#SBATCH --nodes=3\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=2\n",
        "#SBATCH --time=1-01:02:00\n", "#SBATCH --signal=USR2@260\n", "#SBATCH --mem-per-cpu=1536M\n",
        "#SBATCH --requeue\n", " '--config=my file.ini' --optim.lr=0.1 \"$@\" &\n"}) {
    EXPECT_NE(script.find(line), std::string::npos) << line << script;
  }
}

TEST(JobScriptTest, LeavesOutWhatIsUnknown) {
  const std::string script = slurm_script({.ranks = 1, .time_s = 1});
  EXPECT_EQ(script.find("--mem-"), std::string::npos) << script;
  EXPECT_NE(script.find("--time=00:01:00\n"), std::string::npos) << script;
  EXPECT_NE(script.find("--signal=USR2@180\n"), std::string::npos) << script;
}

TEST(JobScriptTest, HasTheCommandsOfTheScriptOfTheTools) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  std::ifstream file((source != nullptr ? std::string(source) : ".") + "/tools/slurm/train.sbatch");
  std::stringstream text;
  text << file.rdbuf();
  ASSERT_NE(text.str().find("srun"), std::string::npos);
  EXPECT_EQ(commands_of(slurm_script({})), commands_of(text.str()));
}

TEST(JobScriptTest, WordsOfAShellStayOneWord) {
  EXPECT_EQ(shell_word("--a.b=1,2"), "--a.b=1,2");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("$x"), "'$x'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace job_script_test
}  // namespace lockstep::trainer
