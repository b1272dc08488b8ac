// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <spdlog/details/null_mutex.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <mutex>
#include <unistd.h>
#include <utility>

#include "core/system/process.hpp"
#include "log/console_output.hpp"

namespace lockstep::log {

namespace {

using spdlog::level::level_enum;
using Logger = std::unique_ptr<spdlog::logger>;

struct State {
  std::mutex mutex;
  LogOptions options;
  std::unique_ptr<ConsoleOutput> output;  // null without a file
  Logger out;                             // stdout, with time and level
  Logger err;                             // stderr, likewise
  Logger file;                            // null without a file
  bool status_is_shown = false;
  bool is_output_lost = false;
  bool is_stall_said = false;
};

State& state() {
  static auto* const the_state = new State;  // never destroyed: other destructors may still log
  return *the_state;
}

Logger make_logger(spdlog::sink_ptr sink, const std::string& time, const LogOptions& options) {
  auto logger = std::make_unique<spdlog::logger>("lockstep", std::move(sink));
  logger->set_pattern(time + " %l r" + std::to_string(options.rank) + "/" + std::to_string(options.world_size) + " %v");
  logger->set_level(level_enum::trace);
  logger->flush_on(level_enum::warn);
  // A full disk must not end a run: it is said once, and training continues.
  logger->set_error_handler([is_said = false](const std::string& reason) mutable {
    if (!std::exchange(is_said, true)) std::fprintf(stderr, "a log line could not be written: %s\n", reason.c_str());
  });
  return logger;
}

/// Writes the lines of a logger to a console.
class ConsoleSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  explicit ConsoleSink(ConsoleOutput& output) : output_(&output) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    output_->write({line.data(), line.size()});
  }
  void flush_() override {}

 private:
  ConsoleOutput* output_;
};

/// Standard output, which must not block a run whose lines are in a file as well.
spdlog::sink_ptr output_sink(State& s) {
  s.out.reset();
  s.output = s.options.file.empty() ? nullptr : std::make_unique<ConsoleOutput>(STDOUT_FILENO);
  if (s.output && s.output->is_open()) return std::make_shared<ConsoleSink>(*s.output);
  s.output.reset();
  return std::make_shared<spdlog::sinks::stdout_sink_mt>();
}

void make_writable(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // ignored: what goes wrong here shows in open, with its reason
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  const int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw ConfigError("log file " + path + " cannot be opened for writing: " + std::strerror(errno));
  ::close(fd);
}

bool is_terminal(const std::string& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  const bool is_one = fd >= 0 && ::isatty(fd) == 1;
  if (fd >= 0) ::close(fd);
  return is_one;
}

void erase_status(State& s) {
  if (!s.status_is_shown) return;
  std::fputs("\r\033[K", stdout);
  std::fflush(stdout);
  s.status_is_shown = false;
}

level_enum level_of(Level level) {
  static constexpr std::array kLevels = {level_enum::debug, level_enum::info, level_enum::warn, level_enum::err};
  return kLevels.at(static_cast<std::size_t>(level));
}

bool rank_0_speaks(const State& s) { return s.options.to_console && s.options.rank == 0; }

void to_console(State& s, level_enum level, const std::string& message) {
  erase_status(s);
  const Logger& logger = level >= level_enum::warn ? s.err : s.out;
  if (logger) {
    logger->log(level, message);
  } else {
    std::fprintf(stderr, "%s\n", message.c_str());
  }
}

/// 0, or the errno of a standard output that cannot be written.
int print(State& s, const std::string& message) {
  if (s.file) s.file->log(level_enum::info, message);
  if (!rank_0_speaks(s)) return 0;
  erase_status(s);
  errno = 0;
  const bool is_written = std::fprintf(stdout, "%s\n", message.c_str()) >= 0 && std::fflush(stdout) == 0;
  if (!is_written) std::clearerr(stdout);
  return is_written ? 0 : errno;
}

/// Says once that lines for the console are lost, and once that they are late.
void check_output(State& s) {
  std::fflush(stdout);
  if (s.output && s.output->is_stalled() && !std::exchange(s.is_stall_said, true)) {
    s.file->log(level_enum::warn, "nobody reads standard output; the run continues, and lines can be missing there");
  }
  if (s.is_output_lost || (std::ferror(stdout) == 0 && !(s.output && s.output->is_lost()))) return;
  s.is_output_lost = true;
  const std::string text = "standard output cannot be written any more" +
                           (s.options.file.empty() ? "" : "; the log continues in " + s.options.file);
  if (s.file) s.file->log(level_enum::warn, text);
  if (s.err) s.err->log(level_enum::warn, text);
}

void say(level_enum level, const std::string& message, bool from_any_rank = false) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.file) s.file->log(level, message);
  const bool speaks = rank_0_speaks(s) || (from_any_rank && s.options.to_console);
  if (!speaks || level < level_of(s.options.console_level)) return;
  to_console(s, level, message);
  check_output(s);
}

}  // namespace

void configure(const LogOptions& options) {
  if (!options.file.empty()) make_writable(options.file);
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.options = options;
  s.out = make_logger(output_sink(s), "%H:%M:%S", options);
  s.err = make_logger(std::make_shared<spdlog::sinks::stderr_sink_mt>(), "%H:%M:%S", options);
  s.file.reset();
  if (options.file.empty()) return;
  s.file =
      make_logger(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file), "%Y-%m-%d %H:%M:%S.%e", options);
}

void hurry() noexcept { ConsoleOutput::hurry(); }

void debug(const std::string& message) { say(level_enum::debug, message); }

void info(const std::string& message) { say(level_enum::info, message); }

void warning(const std::string& message) { say(level_enum::warn, message); }

void error(const std::string& message) { say(level_enum::err, message, true); }

void agreed_error(const std::string& message) { say(level_enum::err, message); }

void plain(const std::string& message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  print(s, message);
}

void result(const std::string& message) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const int reason = print(s, message);
  if (reason != 0) {
    throw DataError(std::string("the result could not be written to standard output: ") + std::strerror(reason));
  }
}

void flush() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.file) s.file->flush();
  if (s.output) s.output->flush();
  std::fflush(stdout);
}

void status(const std::string& line) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (!rank_0_speaks(s) || s.options.console_level > Level::info || !stdout_is_terminal()) return;
  erase_status(s);
  if (line.empty()) return;
  std::fputs(line.c_str(), stdout);
  std::fflush(stdout);
  s.status_is_shown = true;
}

bool stdout_is_terminal() {
  if (::isatty(STDOUT_FILENO) != 1) return false;
  const bool is_under_mpirun = std::any_of(kLocalSizeVariables.begin(), kLocalSizeVariables.end(),
                                           [](const char* name) { return std::getenv(name) != nullptr; });
  return !is_under_mpirun || is_terminal("/proc/" + std::to_string(::getppid()) + "/fd/1");
}

}  // namespace lockstep::log
