// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/signals.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <string_view>
#include <unistd.h>

#include "core/system/standard_streams.hpp"
#include "engine/session.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kPair = 5 * kSecond;
std::atomic<std::int64_t> interrupted_at{-kPair};  // time on the monotonic clock, in ns

// Only what is safe in a signal handler is called below.

extern "C" void on_stop_signal(int) {
  engine::request_stop();
  log::hurry();
}

extern "C" void on_interrupt(int signal) {
  on_stop_signal(signal);
  std::timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  const std::int64_t moment = now.tv_sec * kSecond + now.tv_nsec;
  if (moment - interrupted_at.exchange(moment) >= kPair) return;
  constexpr std::string_view kText =
      "interrupted twice: exiting without saving; the last checkpoint is the latest state\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(static_cast<int>(ExitCode::interrupted));
}

/// A signal that was ignored when the program started stays ignored, as under nohup.
void handle_unless_ignored(int signal, void (*handler)(int)) {
  if (std::signal(signal, handler) == SIG_IGN) std::signal(signal, SIG_IGN);
}

}  // namespace

void install_signal_handlers() {
  guard_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is an error of that write, not the end of the process
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) std::signal(signal, on_stop_signal);
  handle_unless_ignored(SIGINT, on_interrupt);
  handle_unless_ignored(SIGHUP, on_stop_signal);
}

void leave_on_signals() {
  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGXCPU}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP}) handle_unless_ignored(signal, SIG_DFL);
}

}  // namespace lockstep::trainer
