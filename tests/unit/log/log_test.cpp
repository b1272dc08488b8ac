// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <gtest/gtest.h>
#include <pty.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "log/progress.hpp"

namespace lockstep {
namespace log_test {

namespace fs = std::filesystem;

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override {
    log::configure({});
    fs::remove_all(folder_);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  struct Streams {
    std::string out;
    std::string err;
  };
  static Streams captured(const std::function<void()>& body) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    body();
    return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  }
  static void say_everything() {
    log::debug("a debug");
    log::info("an info");
    log::warning("a warning");
    log::error("an error");
    log::agreed_error("an agreed error");
    log::plain("a table");
  }

 private:
  fs::path folder_ = fs::temp_directory_path() / ("log_test." + std::to_string(::getpid()));
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::istringstream text(text_of(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

bool matches(const std::string& text, const std::string& pattern) {
  return std::regex_match(text, std::regex(pattern, std::regex::extended));
}

const std::string kTime = "[0-9]{2}:[0-9]{2}:[0-9]{2} ";

TEST_F(LogTest, ProgressIsALineAfterEachInterval) {
  const Streams streams = captured([] {
    log::configure({});
    {
      log::ProgressLine short_work;
      short_work.show("listing: 1 file");
    }
    log::ProgressLine progress(std::chrono::milliseconds(400));
    progress.show("listing: 2 files");
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    progress.show("listing: 3 files");
    progress.show("listing: 4 files");
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    progress.show("listing: 5 files");
  });
  EXPECT_TRUE(matches(streams.out, kTime + "info r0/1 listing: 3 files\n" + kTime + "info r0/1 listing: 5 files\n"))
      << streams.out;
}

TEST_F(LogTest, RankZeroSpeaksOnBothStreams) {
  const Streams streams = captured([] {
    log::configure({.rank = 0, .world_size = 2});
    say_everything();
  });
  EXPECT_TRUE(matches(streams.out, kTime + "info r0/2 an info\na table\n")) << streams.out;
  EXPECT_TRUE(matches(streams.err, kTime + "warning r0/2 a warning\n" + kTime + "error r0/2 an error\n" + kTime +
                                       "error r0/2 an agreed error\n"))
      << streams.err;
}

TEST_F(LogTest, OtherRanksOnlySpeakOfErrorsThatTheyAloneKnow) {
  const Streams streams = captured([] {
    log::configure({.rank = 3, .world_size = 8});
    say_everything();
  });
  EXPECT_EQ(streams.out, "");
  EXPECT_TRUE(matches(streams.err, kTime + "error r3/8 an error\n")) << streams.err;
}

TEST_F(LogTest, TheConsoleCanBeSilenced) {
  const Streams streams = captured([] {
    log::configure({.to_console = false});
    say_everything();
  });
  EXPECT_EQ(streams.out + streams.err, "");
}

TEST_F(LogTest, TheConsoleShowsItsLevelAndAbove) {
  const Streams quiet = captured([] {
    log::configure({.console_level = log::Level::warning});
    say_everything();
  });
  EXPECT_EQ(quiet.out.find(" info "), std::string::npos) << quiet.out;
  EXPECT_TRUE(matches(quiet.err, kTime + "warning r0/1 a warning\n" + kTime + "error r0/1 an error\n" + kTime +
                                     "error r0/1 an agreed error\n"))
      << quiet.err;
  const Streams all = captured([] {
    log::configure({.console_level = log::Level::debug});
    say_everything();
  });
  EXPECT_NE(all.out.find(" debug "), std::string::npos) << all.out;
}

TEST_F(LogTest, EveryRankKeepsAllInItsFile) {
  const std::string file = path("logs/rank_00003.log");
  captured([&file] {
    log::configure({.rank = 3, .world_size = 8, .file = file});
    say_everything();
    log::flush();
  });
  const auto lines = lines_of(file);
  const std::vector<std::string> ends = {"debug r3/8 a debug",  "info r3/8 an info",          "warning r3/8 a warning",
                                         "error r3/8 an error", "error r3/8 an agreed error", "info r3/8 a table"};
  ASSERT_EQ(lines.size(), ends.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    EXPECT_TRUE(matches(lines[i], "[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}[.][0-9]{3} " + ends[i])) << lines[i];
  }
}

TEST_F(LogTest, AFileIsAppendedToAndWarningsReachItAtOnce) {
  const std::string file = path("rank.log");
  std::ofstream(file) << "an earlier run\n";
  captured([&file] {
    log::configure({.file = file});
    log::info("buffered");
    EXPECT_EQ(lines_of(file).size(), 1u);
    log::warning("at once");
  });
  const auto lines = lines_of(file);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0], "an earlier run");
  EXPECT_TRUE(lines[2].ends_with("warning r0/1 at once")) << lines[2];
}

TEST_F(LogTest, APathThatCannotBeAFileIsAConfigError) {
  std::ofstream(path("plain")) << "x";
  const std::string file = path("plain/logs/rank_00000.log");
  try {
    log::configure({.file = file});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(std::string(error.what()), "log file " + file + " cannot be opened for writing: Not a directory");
  }
}

TEST_F(LogTest, LinesOfSeveralThreadsStayWhole) {
  const std::string file = path("rank.log");
  log::configure({.file = file, .to_console = false});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) log::info("thread " + std::to_string(t) + std::string(200, 'x') + " end");
    });
  }
  for (std::thread& thread : threads) thread.join();
  log::flush();
  const auto lines = lines_of(file);
  EXPECT_EQ(lines.size(), 400u);
  for (const std::string& line : lines) EXPECT_TRUE(line.ends_with("xxx end") && line.size() < 260) << line;
}

/// The text that a child writes whose stdout and stderr are a terminal.
std::string on_a_terminal(const std::function<void()>& body) {
  int master = -1;
  const pid_t child = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (child == 0) {
    body();
    std::_Exit(0);
  }
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(master, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  ::close(master);
  ::waitpid(child, nullptr, 0);
  return text;
}

TEST_F(LogTest, AStatusLineIsErasedBeforeAnythingElse) {
  const std::string text = on_a_terminal([] {
    ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
    log::configure({});
    log::status("10 %");
    log::status("20 %");
    log::plain("a result");
    log::status("30 %");
    log::warning("careful");
    log::status("");
  });
  EXPECT_TRUE(
      matches(text, "10 %\r\033\\[K20 %\r\033\\[Ka result\r\n30 %\r\033\\[K" + kTime + "warning r0/1 careful\r\n"))
      << text;
}

TEST_F(LogTest, NoStatusFromOtherRanksOrWithoutATerminal) {
  EXPECT_EQ(on_a_terminal([] {
              ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
              log::configure({.rank = 1, .world_size = 2});
              log::status("10 %");
            }),
            "");
  EXPECT_EQ(captured([] {
              log::configure({});
              EXPECT_FALSE(log::stdout_is_terminal());
              log::status("10 %");
            }).out,
            "");
}

// mpirun gives a rank a pseudo-terminal even when its own output goes to a file; here the test plays mpirun.
TEST_F(LogTest, UnderMpirunItsStdoutDecides) {
  const auto body = [] {
    ::setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    log::configure({});
    log::status("10 %");
  };
  testing::internal::CaptureStdout();
  const std::string text = on_a_terminal(body);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(text, "");
  EXPECT_EQ(on_a_terminal([&body] {
              const pid_t rank = ::fork();
              if (rank == 0) {
                body();
                std::_Exit(0);
              }
              ::waitpid(rank, nullptr, 0);
            }),
            "10 %");
}

}  // namespace log_test
}  // namespace lockstep
