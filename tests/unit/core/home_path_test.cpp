// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/home_path.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <pwd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace lockstep {
namespace home_path_test {

std::string refusal(const std::string& paths) {
  try {
    with_home(paths, "a.ini:3: ");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(HomePathTest, ReplacesTheTildeThatAPathBeginsWith) {
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(with_home("~"), "/home/me");
  EXPECT_EQ(with_home("~/a"), "/home/me/a");
  EXPECT_EQ(with_home("/x,~/a,b"), "/x,/home/me/a,b");
  EXPECT_EQ(with_home("~root/a"), std::string(::getpwnam("root")->pw_dir) + "/a");
}

TEST(HomePathTest, LeavesOtherTextsAsTheyAre) {
  for (const char* text : {"", "a", "./~", "a~", "a/~/b", "~old", ",", "a,", "a$b", "$/a", "$1/a", "${1}/a", "${a/b",
                           "re:x$", "5$US", "names=~bn", "/a#1", "a #b"})
    EXPECT_EQ(with_home(text), text);
}

TEST(HomePathTest, OptionsOfAnEntryArePathsToo) {
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(with_home("memory,path=~/a,every=10"), "memory,path=/home/me/a,every=10");
  EXPECT_EQ(with_home("name=~"), "name=/home/me");
  EXPECT_EQ(with_home("re:x=~/a"), "re:x=~/a");  // no name of an option
}

TEST(HomePathTest, RefusesAPathWithAVariable) {
  const std::map<std::string, std::string> variables = {
      {"$HOME/a", "$HOME"},  {"${SCRATCH_2}/a", "${SCRATCH_2}"},
      {"/x/$USER", "$USER"}, {"/x/run_${ID}/a", "${ID}"},
      {"a$b/c", "$b"},       {"$HOME", "$HOME"},
      {"${_a}", "${_a}"},    {"$1/$USER/a", "$USER"},
  };
  for (const auto& [path, variable] : variables) {
    EXPECT_EQ(refusal(path), "a.ini:3: '" + path + "': the variable " + variable +
                                 " of the environment is not replaced here; write the path in full");
  }
  EXPECT_EQ(refusal("/x,path=$HOME/a"),
            "a.ini:3: '$HOME/a': the variable $HOME of the environment is not replaced here; write the path in full");
}

TEST(HomePathTest, RefusesAnUnknownUser) {
  EXPECT_EQ(refusal("~no-such-user/a"),
            "a.ini:3: '~no-such-user/a': the home folder is unknown; write the path in full");
}

}  // namespace home_path_test
}  // namespace lockstep
