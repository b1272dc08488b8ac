// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/heal/supervisor.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <poll.h>
#include <string_view>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/store/store.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"
#include "engine/saving/memory_copies.hpp"
#include "trainer/heal/job_hosts.hpp"
#include "trainer/heal/recovery.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
constexpr int kSignalBase = 128;
constexpr auto kGrace = 2s;        // processes of a launcher that was killed end by themselves in one
constexpr auto kLonelyTime = 10s;  // a launcher whose processes have all ended for so long waits for a lost host

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

int exit_code_of_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status); }

/// Starts a program as a group of processes of its own, so that signals of the terminal reach the supervisor only.
/// @param errors  receives what it prints to its standard error; -1 = the program is silent
pid_t start(const std::vector<std::string>& words, int errors) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) {
    if (child < 0) throw ConfigError(fmt::format("no process can be started: {}", std::strerror(errno)));
    return child;
  }
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // a job without its supervisor ends
  const sigset_t set = watched_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  if (errors >= 0) {
    ::dup2(errors, STDERR_FILENO);
  } else if (const int nowhere = ::open("/dev/null", O_RDWR); nowhere >= 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, stream);
  }
  ::execvp(arguments.front(), arguments.data());
  std::fprintf(stderr, "lockstep: %s cannot be started: %s\n", arguments.front(), std::strerror(errno));
  ::_exit(static_cast<int>(ExitCode::configuration));
}

/// The processes whose parent is this one: those that the launcher has left behind are given to the supervisor.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (const fs::directory_entry& thread : fs::directory_iterator(fmt::format("/proc/{}/task", parent), gone)) {
    FileReader list(thread.path().string() + "/children");
    for (pid_t child = 0; list >> child;) found.push_back(child);
  }
  return found;
}

/// Whether the launcher has processes. This process has reaped those of its own that have ended.
bool has_processes(pid_t launcher) {
  return children_of(::getpid()).size() > 1 || std::ranges::any_of(children_of(launcher), checkpoints::is_running);
}

/// Waits for what is left of a job, and ends it.
void end_leftovers() {
  const Clock::time_point limit = Clock::now() + kGrace;
  while (true) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = children_of(::getpid());
    if (left.empty()) return;
    if (Clock::now() >= limit) {
      for (const pid_t process : left) ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(2ms);
  }
}

/// Waits for the launcher, and passes signals on to it. One that does not end by itself after its ranks have is ended:
/// mpirun can wait forever for hosts that are lost.
/// @param is_over            whether the run has told its result
/// @param is_of_this_host    whether a rank on this host has told of the run; others can work without a process here
/// @param is_stop_requested  set when a signal came
int await_end(pid_t launcher, const std::function<bool()>& is_over, const std::function<bool()>& is_of_this_host,
              bool& is_stop_requested) {
  const sigset_t set = watched_signals();
  std::optional<Clock::time_point> over;
  std::optional<Clock::time_point> had_processes;  // the last time; none = it has not started any
  while (true) {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      if (ended == launcher) return exit_code_of_status(status);
    }
    const Clock::time_point now = Clock::now();
    if (!over && is_over()) over = now;
    if (has_processes(launcher)) had_processes = now;
    const bool is_lonely = had_processes && now - *had_processes >= kLonelyTime && is_of_this_host();
    if (is_lonely || (over && now - *over >= kGrace)) ::kill(launcher, SIGKILL);
    constexpr timespec kPoll{.tv_sec = 0, .tv_nsec = 500'000'000};
    const int signal = sigtimedwait(&set, nullptr, &kPoll);
    if (signal < 0 || signal == SIGCHLD) continue;
    is_stop_requested = true;
    ::kill(launcher, signal);
  }
}

/// The hosts that the launcher reaches within some seconds.
std::vector<JobHost> reachable(const std::vector<std::string>& launcher, const std::vector<JobHost>& hosts) {
  constexpr auto kLimit = 10s;
  std::vector<pid_t> probes;
  for (const JobHost& host : hosts) probes.push_back(start(probe_of(launcher, host), -1));
  const Clock::time_point limit = Clock::now() + kLimit;
  std::vector<JobHost> found;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    int status = 0;
    while (::waitpid(probes[i], &status, WNOHANG) == 0) {
      if (Clock::now() >= limit) ::kill(-probes[i], SIGKILL);
      std::this_thread::sleep_for(2ms);
    }
    if (exit_code_of_status(status) == 0) {
      found.push_back(hosts[i]);
    } else {
      log::warning("heal: host " + hosts[i].name + " cannot be reached and is left out");
    }
  }
  return found;
}

/// Counts a failure of a host, and leaves out the hosts that have failed twice.
std::vector<JobHost> without_failing(const std::vector<JobHost>& hosts, const std::string& failed,
                                     std::map<std::string, int>& failures) {
  if (failed.empty()) return hosts;
  const int count = ++failures[failed];
  std::vector<JobHost> chosen = reliable(hosts, failures);
  const bool is_left_out = chosen.size() < hosts.size() &&
                           std::ranges::none_of(chosen, [&](const auto& host) { return host.name == failed; });
  log::warning(fmt::format("heal: a rank on {} has died; failures of this host so far: {}{}", failed, count,
                           is_left_out ? "; it is left out" : ""));
  return chosen;
}

/// The step of the newest state from which a run can continue, as far as this host can tell; -1 = there is none.
std::int64_t newest_step(const std::string& folder) {
  if (folder.empty()) return -1;
  const std::string directory = folder + "/ckpt";
  std::vector<std::int64_t> steps = engine::memory_steps(engine::noted_memory_folder(directory));
  std::error_code unreadable;
  if (fs::is_directory(directory, unreadable)) {
    const std::vector<std::int64_t> saved = checkpoints::list(directory);
    steps.insert(steps.end(), saved.begin(), saved.end());
  }
  return steps.empty() ? -1 : std::ranges::max(steps);
}

/// The words for the end of a job that is started again.
std::string cause_of(const JobEnd& end) {
  if (end.told) return fmt::format("the run ended with exit code {}", *end.told);
  if (end.exit_code > kSignalBase) return fmt::format("the launcher or a rank was killed ({})", end.exit_code);
  if (end.exit_code == 0) return "the ranks have ended without a result";
  return fmt::format("the launcher ended with exit code {}", end.exit_code);
}

/// A file that is removed at the end.
class OwnResultFile {
 public:
  OwnResultFile() {
    const fs::path folder = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const std::string prefix = fmt::format("result-lockstep-{}-", ::geteuid());
    remove_stale(folder, prefix);
    path_ = (folder / (prefix + std::to_string(::getpid()))).string();
    ::setenv("LOCKSTEP_RESULT", path_.c_str(), 1);
  }
  OwnResultFile(const OwnResultFile&) = delete;
  OwnResultFile& operator=(const OwnResultFile&) = delete;
  ~OwnResultFile() { ::unlink(path_.c_str()); }

  ToldResult read() const { return read_result(path_); }
  /// Makes the file new and empty: ranks of an earlier start write to another one.
  void renew() const {
    ::unlink(path_.c_str());
    const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (file >= 0) ::close(file);
  }

 private:
  /// Removes the files of supervisors that were killed.
  static void remove_stale(const fs::path& folder, const std::string& prefix) {
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with(prefix)) continue;
      const auto process = parse_integer(name.substr(prefix.size()));
      if (process && !checkpoints::is_running(static_cast<pid_t>(*process))) fs::remove(entry.path(), ignored);
    }
  }

  std::string path_;
};

}  // namespace

HealCommand parse_heal(const std::vector<std::string>& arguments) {
  HealCommand command;
  auto word = arguments.begin();
  for (; word != arguments.end() && word->starts_with("--"); ++word) {
    constexpr std::string_view kMaxHeals = "--max-heals=";
    const auto number = word->starts_with(kMaxHeals) ? parse_integer(word->substr(kMaxHeals.size())) : std::nullopt;
    if (!number || *number < 0) {
      throw ConfigError("heal: '" + *word + "' is not --max-heals=N, with N from 0, before the launcher");
    }
    command.max_heals = *number;
  }
  command.launcher.assign(word, arguments.end());
  if (command.launcher.empty()) {
    throw ConfigError("heal: state the command that starts the job, as in: trainer heal mpirun -np 4 trainer train");
  }
  return command;
}

int exit_code_of(const JobEnd& end) {
  if (end.told) return *end.told;
  return end.exit_code == 0 ? kSignalBase + SIGKILL : end.exit_code;
}

bool can_heal(const JobEnd& end) {
  if (end.is_stop_requested) return false;
  const int code = exit_code_of(end);
  constexpr std::array kFinal = {ExitCode::done,    ExitCode::configuration, ExitCode::data,       ExitCode::checkpoint,
                                 ExitCode::numeric, ExitCode::stopped,       ExitCode::interrupted};
  return std::ranges::none_of(kFinal, [code](ExitCode final) { return static_cast<int>(final) == code; });
}

std::vector<std::string> restart_arguments(std::vector<std::string> launcher, const std::string& folder) {
  if (folder.empty()) return launcher;
  std::erase_if(launcher, [](const std::string& word) {
    return word.starts_with("--resume=") || word.starts_with("--run.dir=") || word.starts_with("--run.name=");
  });
  launcher.insert(launcher.end(), {"--resume=auto", "--run.dir=" + folder});
  return launcher;
}

namespace {

/// Passes on what the launcher prints to its standard error, and looks there for the host of a rank that has died.
class ErrorStream {
 public:
  ErrorStream() {
    if (::pipe2(ends_.data(), O_CLOEXEC) != 0) throw ConfigError(fmt::format("no pipe: {}", std::strerror(errno)));
    thread_ = std::thread([this] { pass_on(); });
  }
  ErrorStream(const ErrorStream&) = delete;
  ErrorStream& operator=(const ErrorStream&) = delete;
  ~ErrorStream() { finish(); }

  int input() const noexcept { return ends_[1]; }
  /// When the launcher has ended: passes on the rest.
  /// @return  the host; "" = unknown
  std::string finish() {
    is_over_ = true;
    if (thread_.joinable()) thread_.join();
    for (int& end : ends_) {
      if (end >= 0) ::close(std::exchange(end, -1));
    }
    return host_;
  }

 private:
  void pass_on() {
    constexpr int kPollMs = 20;
    while (true) {
      const bool was_over = is_over_;
      pollfd watched{.fd = ends_[0], .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, kPollMs) > 0) {
        std::array<char, 4096> bytes{};
        const ssize_t count = ::read(ends_[0], bytes.data(), bytes.size());
        if (count > 0) take({bytes.data(), static_cast<std::size_t>(count)});
      } else if (was_over) {
        return;
      }
    }
  }

  void take(std::string_view bytes) {
    std::fwrite(bytes.data(), 1, bytes.size(), stderr);
    for (const char byte : bytes) {
      line_ += byte;
      if (byte != '\n') continue;
      if (host_.empty()) host_ = host_that_failed(line_);
      line_.clear();
    }
  }

  std::array<int, 2> ends_{-1, -1};
  std::atomic<bool> is_over_ = false;
  std::string line_;
  std::string host_;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace

int supervise(const HealCommand& command) {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // When a rank has died, mpirun would give the others two seconds, of which they make no use.
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
  const OwnResultFile file;
  std::vector<std::string> words = command.launcher;
  std::vector<JobHost> hosts = hosts_in(command.launcher);
  std::map<std::string, int> failures;
  std::string folder;
  std::int64_t newest = -1;
  std::int64_t fruitless = 0;
  while (true) {
    file.renew();
    JobEnd end;
    std::optional<ErrorStream> errors;  // only a job on several hosts can leave one out
    if (hosts.size() > 1) errors.emplace();
    end.exit_code = await_end(
        start(words, errors ? errors->input() : STDERR_FILENO), [&file] { return file.read().code.has_value(); },
        [&file] { return !file.read().folder.empty(); }, end.is_stop_requested);
    const double failed_at = seconds_since_1970();
    end_leftovers();
    const std::string failed_host = errors ? errors->finish() : "";
    const ToldResult told = file.read();
    end.told = told.code;
    if (!can_heal(end)) return exit_code_of(end);
    if (!told.folder.empty()) folder = told.folder;
    const std::int64_t step = newest_step(folder);
    fruitless = step > newest ? 0 : fruitless + 1;
    newest = std::max(newest, step);
    const std::string cause = cause_of(end);
    if (fruitless > command.max_heals) {
      log::error(fmt::format("heal: {}; {} starts have brought no new checkpoint, and the job is not started again",
                             cause, fruitless));
      return exit_code_of(end);
    }
    log::warning(
        fmt::format("heal: {}; starting the job again{}", cause, step < 0 ? "" : fmt::format(" from step {}", step)));
    const Recovery recovery{.cause = cause, .failed_at = failed_at, .reached_step = told.step.value_or(0)};
    ::setenv("LOCKSTEP_RECOVERY", recovery.text().c_str(), 1);
    if (hosts.size() > 1) {
      hosts = reachable(command.launcher, without_failing(hosts, failed_host, failures));
      if (hosts.empty()) {
        log::error("heal: no host can be reached");
        return exit_code_of(end);
      }
    }
    words = restart_arguments(command.launcher, folder);
    if (!hosts.empty()) words = on_hosts(std::move(words), hosts);
  }
}

}  // namespace lockstep::trainer
