// SPDX-License-Identifier: BSD-3-Clause
#include "log/console_output.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <unistd.h>

namespace lockstep::log {
namespace console_output_test {

class ConsoleOutputTest : public ::testing::Test {
 protected:
  ConsoleOutputTest() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    std::signal(SIGPIPE, SIG_IGN);
    ConsoleOutput::hurry();
  }
  ~ConsoleOutputTest() override {
    for (const int end : ends_) ::close(end);
  }

  std::string read_some() const {
    std::string text(1 << 20, '\0');
    const ssize_t count = ::read(ends_[0], text.data(), text.size());
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return text;
  }

  std::array<int, 2> ends_{};
};

// A pipe holds 64 KB, and so does the memory for waiting lines.
TEST_F(ConsoleOutputTest, APipeThatNobodyReadsDoesNotBlock) {
  ConsoleOutput output(ends_[1]);
  ASSERT_TRUE(output.is_open());
  const auto start = std::chrono::steady_clock::now();
  std::string all;
  for (int i = 0; i < 40000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    output.write(line);
    all += line;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4));
  EXPECT_TRUE(output.is_stalled());
  std::string got = read_some();
  output.flush();
  got += read_some();
  output.write("last\n");
  EXPECT_FALSE(output.is_stalled());
  EXPECT_FALSE(output.is_lost());
  got += read_some();
  const std::size_t end = got.find("last\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_GT(end, 100000U);
  EXPECT_EQ(got.substr(0, end), all.substr(0, end)) << "the first lines, whole and in order";
}

TEST_F(ConsoleOutputTest, AReaderThatEndsIsNoticed) {
  ConsoleOutput output(ends_[1]);
  ::close(ends_[0]);
  output.write("line\n");
  EXPECT_TRUE(output.is_lost());
  EXPECT_FALSE(output.is_stalled());
}

TEST(ConsoleOutputFileTest, AFileIsNoConsole) {
  std::FILE* const file = std::tmpfile();
  EXPECT_FALSE(ConsoleOutput(::fileno(file)).is_open());
  std::fclose(file);
}

}  // namespace console_output_test
}  // namespace lockstep::log
