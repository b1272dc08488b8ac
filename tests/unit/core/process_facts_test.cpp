// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/process_facts.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "core/system/stacks.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep {
namespace process_facts_test {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

// The numbers of fields are those of proc(5); field 24 is the resident memory in pages, field 52 the exit status.
TEST(ProcessFactsTest, ReadsTheStateBehindAnyName) {
  std::string text = "42 (a) R (b)) T";
  for (int field = 4; field <= 52; ++field) text += " " + std::to_string(field);
  const ProcessFacts facts = parse_process_stat(text + "\n");
  EXPECT_EQ(facts.state, 'T');
  EXPECT_EQ(facts.memory_mb, 24.0 * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20));
  EXPECT_FALSE(facts.has_status);
  text[text.find(") T") + 2] = 'Z';
  EXPECT_TRUE(parse_process_stat(text).has_status);
  EXPECT_EQ(parse_process_stat(text).exit_status, 52);
  EXPECT_EQ(parse_process_stat("").state, '?');
}

TEST(ProcessFactsTest, TellsStoppedFromDead) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  kill(child, SIGSTOP);
  waitpid(child, nullptr, WUNTRACED);
  EXPECT_TRUE(is_stopped(process_facts(child).state));
  kill(child, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT);
  const ProcessFacts dead = process_facts(child);
  EXPECT_TRUE(is_gone(dead.state));
  if (dead.has_status) {
    EXPECT_EQ(WTERMSIG(dead.exit_status), SIGKILL);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(process_facts(child).state, '?');
}

TEST(ProcessFactsTest, NamesSignals) {
  EXPECT_EQ(signal_text(9), "9 (KILL)");
  EXPECT_EQ(signal_text(1000), "1000");
}

TEST(MemoryKillsTest, CountsInBothVersionsOfControlGroups) {
  const testing::TemporaryFolder folder;
  const fs::path root = folder.path("root");
  EXPECT_EQ(memory_kills(root), std::nullopt);
  write(root / "proc/self/cgroup", "4:memory:/job\n0::/unit\n");
  write(root / "sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
  EXPECT_EQ(memory_kills(root), 2);
  write(root / "sys/fs/cgroup/unit/memory.events", "low 7\noom 3\noom_kill 1\n");
  EXPECT_EQ(memory_kills(root), 3);
}

// The group of a container is that of the mount.
TEST(MemoryKillsTest, FindsTheGroupOfAContainer) {
  const testing::TemporaryFolder folder;
  const fs::path root = folder.path("root");
  write(root / "proc/self/cgroup", "0::/system.slice/not-here\n");
  write(root / "sys/fs/cgroup/memory.events", "oom_kill 5\n");
  EXPECT_EQ(memory_kills(root), 5);
}

[[gnu::noinline]] void wait_in_a_named_function(std::promise<pid_t>& begun, const std::future<void>& end) {
  begun.set_value(gettid());
  end.wait();
}

TEST(StacksTest, ShowTheFunctionInWhichAThreadWaits) {
  prepare_stacks();
  std::promise<pid_t> begun;
  std::promise<void> end;
  const std::future<void> is_over = end.get_future();
  std::thread waiting([&] { wait_in_a_named_function(begun, is_over); });
  const pid_t id = begun.get_future().get();
  const std::vector<ThreadFacts> threads = stacks_of_threads(100);
  end.set_value();
  waiting.join();
  const auto found = std::ranges::find(threads, id, &ThreadFacts::id);
  ASSERT_NE(found, threads.end());
  const auto is_named = [](const std::string& frame) {
    return frame.find("wait_in_a_named_function") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(found->frames, is_named)) << ::testing::PrintToString(found->frames);
  EXPECT_EQ(std::ranges::find(threads, gettid(), &ThreadFacts::id), threads.end());  // the one that asks
}

}  // namespace process_facts_test
}  // namespace lockstep
