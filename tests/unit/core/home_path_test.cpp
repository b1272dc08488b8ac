// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/home_path.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <pwd.h>

#include <cstdlib>
#include <string>

namespace lockstep {
namespace home_path_test {

TEST(HomePathTest, ReplacesTheTildeThatAPathBeginsWith) {
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(with_home("~"), "/home/me");
  EXPECT_EQ(with_home("~/a"), "/home/me/a");
  EXPECT_EQ(with_home("/x,~/a,b"), "/x,/home/me/a,b");
  EXPECT_EQ(with_home("~root/a"), std::string(::getpwnam("root")->pw_dir) + "/a");
}

TEST(HomePathTest, LeavesOtherTextsAsTheyAre) {
  for (const char* text : {"", "a", "./~", "a~", "a/~/b", "~old", ",", "a,", "$a", "a$b/c", "$/a", "re:x$"})
    EXPECT_EQ(with_home(text), text);
}

TEST(HomePathTest, RefusesAPathThatBeginsWithAVariable) {
  for (const char* text : {"$HOME/a", "${SCRATCH_2}/a", "/x,$HOME/a"}) EXPECT_THROW(with_home(text), ConfigError);
}

TEST(HomePathTest, RefusesAnUnknownUser) { EXPECT_THROW(with_home("~no-such-user/a"), ConfigError); }

}  // namespace home_path_test
}  // namespace lockstep
