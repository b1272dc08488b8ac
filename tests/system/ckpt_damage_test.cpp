// SPDX-License-Identifier: BSD-3-Clause
// The program `ckpt` on files that are damaged or none of ours.
#include <gtest/gtest.h>

#include <random>

#include "ckpt_runs.hpp"

namespace lockstep {
namespace ckpt_damage_test {

using testing::ckpt;
using testing::ProgramResult;
using testing::state_of;

constexpr int kUsage = 2;
constexpr int kCorrupt = 4;
constexpr int kIncompatible = 6;
constexpr int kRefused = 7;

class CkptDamageTest : public ::testing::Test {
 protected:
  CkptDamageTest() : path_(checkpoints::write(folder_ / "ckpt", 10, state_of({})) + "/state.h5") {
    whole_ = testing::read_file(path_);
  }

  void expect(const std::string& bytes, int code, const std::string& part) const {
    testing::write_file(folder_ / "x", bytes);
    for (const char* const command : {"verify", "hash", "info"}) {
      const ProgramResult outcome = ckpt(command + (" " + (folder_ / "x")));
      EXPECT_EQ(outcome.exit_code, code) << command << outcome.output;
      EXPECT_NE(outcome.output.find(part), std::string::npos) << part << "\n" << outcome.output;
    }
  }

  testing::TemporaryFolder folder_;
  std::string path_;
  std::string whole_;
};

TEST_F(CkptDamageTest, OtherKindsAreNamed) {
  expect("", kCorrupt, "empty");
  expect("hello\n", kUsage, "text file");
  expect(std::string(5000, '\0'), kCorrupt, "zeros");
  expect("\x1F\x8B\x08 ", kUsage, "gzip");
  expect(whole_.substr(0, 6000), kCorrupt, "truncated");
  expect(whole_ + "x", kCorrupt, "appended");
}

TEST_F(CkptDamageTest, OtherVersions) {
  std::string other = whole_;
  other[8] = '\x63';
  expect(other, kIncompatible, "version 99");
}

TEST_F(CkptDamageTest, TheDamagedArrayIsNamed) {
  // 1, 2, ... 6 as float32: the values of conv.weight.
  const std::string six("\0\0\xC0\x40", 4);
  const std::size_t position = whole_.find(std::string("\0\0\xA0\x40", 4) + six);
  ASSERT_NE(position, std::string::npos);
  whole_[position] ^= 1;
  testing::write_file(folder_ / "x", whole_);
  for (const std::string& command : {std::string("verify "), std::string("hash "), "diff " + path_ + " "}) {
    const ProgramResult outcome = ckpt(command + (folder_ / "x"));
    EXPECT_EQ(outcome.exit_code, kCorrupt) << outcome.output;
    EXPECT_NE(outcome.output.find("/model/params/conv.weight"), std::string::npos) << outcome.output;
  }
  const auto json = testing::json_of("verify " + (folder_ / "x"));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["files"][0]["code"], kCorrupt);
}

TEST_F(CkptDamageTest, VerifyAllFindsTheDamagedOnes) {
  checkpoints::write(folder_ / "ckpt", 20, state_of({.step = 20}));
  whole_[5000] ^= 1;
  testing::write_file(path_, whole_);
  const ProgramResult outcome = ckpt("verify --all " + (folder_ / "ckpt"));
  EXPECT_EQ(outcome.exit_code, kCorrupt);
  EXPECT_NE(outcome.output.find("BAD  "), std::string::npos) << outcome.output;
  EXPECT_NE(outcome.output.find("ok "), std::string::npos) << outcome.output;
}

TEST_F(CkptDamageTest, LinksToFilesAreReadAndPipesAreRefused) {
  std::filesystem::create_symlink(path_, folder_ / "link");
  EXPECT_EQ(ckpt("ls " + (folder_ / "link")).exit_code, 0);
  EXPECT_EQ(testing::run_shell("mkfifo '" + (folder_ / "pipe") + "' && " + testing::ckpt_program() + " ls " +
                               (folder_ / "pipe"))
                .exit_code,
            kRefused);
}

// Seeded: any flipped byte is refused by verify, and no command crashes or hangs.
TEST_F(CkptDamageTest, AnyFlippedByteIsRefused) {
  std::mt19937_64 random(testing::test_seed());
  const int cases = testing::is_long_run() ? 500 : 40;
  for (int i = 0; i < cases; ++i) {
    std::string damaged = whole_;
    const std::size_t position = random() % damaged.size();
    damaged[position] = static_cast<char>(damaged[position] ^ static_cast<char>(1 << random() % 8));
    testing::write_file(folder_ / "x", damaged);
    const int code = ckpt("verify " + (folder_ / "x")).exit_code;
    // A flip in the magic or the version makes another kind of file of it.
    EXPECT_TRUE(code == kCorrupt || (position < 10 && (code == kUsage || code == kIncompatible)))
        << position << " " << code;
    for (const char* const command : {"ls ", "info ", "stat "}) {
      const int other = ckpt(command + (folder_ / "x")).exit_code;
      EXPECT_TRUE(other == 0 || other == code) << command << position << " " << other;
    }
  }
}

}  // namespace ckpt_damage_test
}  // namespace lockstep
