// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/log/log.hpp>

#include <gtest/gtest.h>
#include <pty.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

#include "report/console/progress.hpp"

namespace lockstep::report {
namespace console_test {

ConsoleValues sample() {
  return {.step = 120,
          .total_steps = 2000,
          .epoch = 1,
          .loss = 0.32144,
          .lr = 0.001,
          .throughput = 10234.4,
          .data_wait_share = 0.0123,
          .grad_norm = 0.53,
          .eta_seconds = 83.9};
}

TEST(ConsoleLineTest, HasAFixedOrder) {
  EXPECT_EQ(console_line(sample()),
            "step 120/2000 epoch 1 loss 0.3214 lr 0.00100 samples/s 10234 data-wait 1.2% grad-norm 0.53 eta 0:01:23");
}

TEST(ConsoleLineTest, ShowsGroupsMemoryAndUtilization) {
  ConsoleValues values = sample();
  values.memory_mb = 512.4;
  values.mfu = 0.414;
  values.group_lrs = {{"decay", 0.001}, {"head", 0.01}};
  EXPECT_EQ(console_line(values),
            "step 120/2000 epoch 1 loss 0.3214 lr decay 0.00100 head 0.0100 samples/s 10234 data-wait 1.2% grad-norm "
            "0.53 mem 512M mfu 41% eta 0:01:23");
  values.memory_mb = 1536;
  values.group_lrs = {{"a", 0.001}, {"b", 0.01}, {"c", 1e-5}, {"d", 0.002}};
  const std::string line = console_line(values);
  EXPECT_NE(line.find(" lr 1.00e-05 to 0.0100 "), std::string::npos) << line;
  EXPECT_NE(line.find(" mem 1.5G "), std::string::npos) << line;
}

TEST(ConsoleLineTest, LeavesOutWhatIsNotKnown) {
  ConsoleValues values = sample();
  values.total_steps = 0;
  values.grad_norm.reset();
  values.eta_seconds.reset();
  values.throughput_unit = "tokens/s";
  values.throughput = 12.345;
  EXPECT_EQ(console_line(values), "step 120 epoch 1 loss 0.3214 lr 0.00100 tokens/s 12.3 data-wait 1.2%");
}

TEST(ConsoleLineTest, NumbersOfAnySize) {
  ConsoleValues values = sample();
  const auto loss_and_lr = [&values](double loss, double lr) {
    values.loss = loss;
    values.lr = lr;
    const std::string line = console_line(values);
    return line.substr(line.find("loss"), line.find(" samples/s") - line.find("loss"));
  };
  EXPECT_EQ(loss_and_lr(0.321, 0.1), "loss 0.3210 lr 0.100");
  EXPECT_EQ(loss_and_lr(12.3456, 1e-5), "loss 12.35 lr 1.00e-05");
  EXPECT_EQ(loss_and_lr(1234.4, 125), "loss 1234 lr 125");
  EXPECT_EQ(loss_and_lr(123456, 0), "loss 1.235e+05 lr 0.00");
  EXPECT_EQ(loss_and_lr(std::nan(""), 1), "loss nan lr 1.00");
  EXPECT_EQ(loss_and_lr(INFINITY, 1), "loss inf lr 1.00");
}

TEST(ProgressTextTest, DrawsTheShareDone) {
  EXPECT_EQ(progress_text({.done = 0, .total = 8}, 22), "  0% [>          ] 0/8");
  EXPECT_EQ(progress_text({.done = 4, .total = 8}, 22), " 50% [=====>     ] 4/8");
  EXPECT_EQ(progress_text({.done = 8, .total = 8}, 22), "100% [===========] 8/8");
  EXPECT_EQ(progress_text({.done = 9, .total = 8}, 22), "100% [===========] 8/8");
  EXPECT_EQ(progress_text({.done = 1, .total = 2, .eta_seconds = 83}, 35), " 50% [======>     ] 1/2 eta 0:01:23");
}

TEST(ProgressTextTest, NeverExceedsItsWidth) {
  for (std::size_t width = 0; width < 120; ++width) {
    EXPECT_LE(progress_text({.done = 900, .total = 2000, .eta_seconds = 83}, width).size(), width);
    EXPECT_LE(progress_text({.done = 900, .eta_seconds = 83}, width).size(), width);
  }
  EXPECT_EQ(progress_text({.done = 900, .total = 2000}, 15), " 45% 900/2000");
  EXPECT_EQ(progress_text({.done = 900, .eta_seconds = 83}, 79), "900 steps eta 0:01:23");
  EXPECT_EQ(progress_text({.done = 1, .total = 2}, 500).size(), 4 + 3 + 40 + 4u);
}

std::string on_a_terminal(const std::function<void()>& body) {
  int master = -1;
  const pid_t child = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (child == 0) {
    ::unsetenv("OMPI_COMM_WORLD_LOCAL_SIZE");
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

void show_three_updates() {
  log::configure({});
  ProgressBar bar;
  const SteadyClock::time_point start;
  bar.update({.done = 1}, start);
  bar.update({.done = 2}, start + std::chrono::milliseconds(99));
  bar.update({.done = 3}, start + std::chrono::milliseconds(100));
}

TEST(ProgressBarTest, DrawsTenTimesASecondAtMostAndErasesItself) {
  EXPECT_EQ(on_a_terminal(show_three_updates), "1 steps\r\033[K3 steps\r\033[K");
}

TEST(ProgressBarTest, IsSilentWithoutATerminal) {
  testing::internal::CaptureStdout();
  show_three_updates();
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

}  // namespace console_test
}  // namespace lockstep::report
