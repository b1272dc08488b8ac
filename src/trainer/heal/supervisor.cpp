// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/heal/supervisor.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <optional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "checkpoints/store/store.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "core/text/text_stream.hpp"
#include "engine/saving/memory_copies.hpp"
#include "trainer/heal/recovery.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::array kPassedOn = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
constexpr int kSignalBase = 128;
constexpr auto kGrace = 2s;  // processes of a launcher that was killed end by themselves in one

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kPassedOn) sigaddset(&set, signal);
  sigaddset(&set, SIGCHLD);
  return set;
}

int exit_code_of_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : kSignalBase + WTERMSIG(status); }

/// Starts a program as a group of processes of its own, so that signals of the terminal reach the supervisor only.
pid_t start(const std::vector<std::string>& words, bool is_silent = false) {
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
  if (const int nowhere = is_silent ? ::open("/dev/null", O_RDWR) : -1; nowhere >= 0) {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, stream);
  }
  ::execvp(arguments.front(), arguments.data());
  std::fprintf(stderr, "lockstep: %s cannot be started: %s\n", arguments.front(), std::strerror(errno));
  ::_exit(static_cast<int>(ExitCode::configuration));
}

/// The processes whose parent is this one: those that the launcher has left behind are given to it.
std::vector<pid_t> children() {
  FileReader list(fmt::format("/proc/self/task/{}/children", ::getpid()));
  std::vector<pid_t> found;
  for (pid_t child = 0; list >> child;) found.push_back(child);
  return found;
}

/// Waits for what is left of a job, and ends it.
void end_leftovers() {
  const Clock::time_point limit = Clock::now() + kGrace;
  while (true) {
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    const std::vector<pid_t> left = children();
    if (left.empty()) return;
    if (Clock::now() >= limit) {
      for (const pid_t process : left) ::kill(process, SIGKILL);
    }
    std::this_thread::sleep_for(2ms);
  }
}

/// Waits for the launcher, and passes signals on to it. One that does not end by itself after its ranks have is ended:
/// mpirun can wait forever for hosts on which ranks have died.
/// @param is_over            whether the run has told its result
/// @param is_stop_requested  set when a signal came
int await_end(pid_t launcher, const std::function<bool()>& is_over, bool& is_stop_requested) {
  const sigset_t set = watched_signals();
  std::optional<Clock::time_point> over;
  while (true) {
    int status = 0;
    const pid_t ended = ::waitpid(launcher, &status, WNOHANG);
    if (ended == launcher) return exit_code_of_status(status);
    if (!over && is_over()) over = Clock::now();
    if (over && Clock::now() - *over >= kGrace) ::kill(launcher, SIGKILL);
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
  for (const JobHost& host : hosts) probes.push_back(start(probe_of(launcher, host), true));
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

/// The step of the newest state from which a run can continue, as far as this host can tell; -1 = there is none.
std::int64_t newest_step(const std::string& folder) {
  if (folder.empty()) return -1;
  std::int64_t newest = -1;
  const std::string directory = folder + "/ckpt";
  for (const std::string& place : {directory, engine::noted_memory_folder(directory)}) {
    std::error_code unreadable;
    if (place.empty() || !fs::is_directory(place, unreadable)) continue;
    const std::vector<std::int64_t> steps = checkpoints::list(place);
    if (!steps.empty()) newest = std::max(newest, steps.back());
  }
  return newest;
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
    path_ = (folder / fmt::format("result-lockstep-{}-{}", ::geteuid(), ::getpid())).string();
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

/// The place of the value of an option, of which one of two names is given; the end = it is not there.
std::vector<std::string>::const_iterator value_of(const std::vector<std::string>& words, const std::string& name,
                                                  const std::string& other) {
  const auto found =
      std::ranges::find_if(words, [&](const std::string& word) { return word == name || word == other; });
  return found == words.end() || found + 1 == words.end() ? words.end() : found + 1;
}

}  // namespace

std::vector<JobHost> hosts_in(const std::vector<std::string>& launcher) {
  const auto list = value_of(launcher, "--host", "-H");
  if (list == launcher.end()) return {};
  std::vector<JobHost> hosts;
  for (const std::string& entry : split_list(*list, ',')) {
    const std::size_t colon = entry.find(':');
    const auto slots = colon == std::string::npos ? std::nullopt : parse_integer(entry.substr(colon + 1));
    hosts.push_back({.name = entry.substr(0, colon), .slots = static_cast<int>(slots.value_or(1))});
  }
  return hosts;
}

std::vector<std::string> on_hosts(std::vector<std::string> launcher, const std::vector<JobHost>& hosts) {
  std::string list;
  std::int64_t slots = 0;
  for (const JobHost& host : hosts) {
    list += (list.empty() ? "" : ",") + host.name + ":" + std::to_string(host.slots);
    slots += host.slots;
  }
  const auto place_of = [&launcher](const std::string& name, const std::string& other) {
    return launcher.begin() + (value_of(launcher, name, other) - launcher.cbegin());
  };
  if (const auto place = place_of("--host", "-H"); place != launcher.end()) *place = list;
  if (const auto place = place_of("-np", "-n"); place != launcher.end()) {
    const std::int64_t ranks = parse_integer(*place).value_or(slots);
    *place = std::to_string(std::min(ranks, slots));
  }
  return launcher;
}

std::vector<std::string> probe_of(const std::vector<std::string>& launcher, const JobHost& host) {
  std::vector<std::string> words = on_hosts(launcher, {{.name = host.name, .slots = 1}});
  const auto ranks = value_of(words, "-np", "-n");
  if (ranks != words.end()) words.erase(ranks + 1, words.end());
  words.emplace_back("true");
  return words;
}

int supervise(const HealCommand& command) {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // When a rank has died, mpirun would give the others two seconds, of which they make no use.
  ::setenv("OMPI_MCA_odls_base_sigkill_timeout", "0", 0);
  const OwnResultFile file;
  std::vector<std::string> words = command.launcher;
  std::vector<JobHost> hosts = hosts_in(command.launcher);
  std::string folder;
  std::int64_t newest = -1;
  std::int64_t fruitless = 0;
  while (true) {
    file.renew();
    JobEnd end;
    end.exit_code = await_end(
        start(words), [&file] { return file.read().code.has_value(); }, end.is_stop_requested);
    const double failed_at = seconds_since_1970();
    end_leftovers();
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
      hosts = reachable(command.launcher, hosts);
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
