// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/lease.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "core/system/process.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::checkpoints {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFields = 16;
constexpr std::size_t kMaxLength = 256;
constexpr std::chrono::seconds kDeadAfter{600};
constexpr std::chrono::seconds kClockStep{2};  // smallest difference that is reported as one of clocks

/// The texts in a lease, in the order of its lines.
constexpr std::pair<const char*, std::string LeaseHolder::*> kLeaseFields[] = {
    {"host", &LeaseHolder::host},       {"process", &LeaseHolder::process}, {"system", &LeaseHolder::system},
    {"started", &LeaseHolder::started}, {"job", &LeaseHolder::job},         {"cluster", &LeaseHolder::cluster}};

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() < 18 && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string first_word(const std::string& path) {
  FileReader file(path);
  std::string word;
  file >> word;
  return word;
}

/// "3f0c2a...-pid:[4026531836]", or "" where the system does not say.
std::string this_system() {
  std::error_code error;
  const std::string processes = fs::read_symlink("/proc/self/ns/pid", error).string();
  const std::string boot = first_word("/proc/sys/kernel/random/boot_id");
  return error || boot.empty() ? "" : boot + "-" + processes;
}

/// Field 22 of /proc/PID/stat; the name in field 2 can contain blanks and brackets.
std::string start_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string::npos) return "";
  TextReader words(stat.substr(name_end + 2));
  std::string word;
  for (int field = 3; field <= 22; ++field) words >> word;
  return words ? word : "";
}

bool is_on_this_system(const LeaseHolder& holder, const LeaseHolder& me) {
  return holder.system.empty() || me.system.empty() ? holder.host == me.host : holder.system == me.system;
}

/// Whether a process of this system is alive. A number that is used again has another start.
bool is_alive(const LeaseHolder& holder) {
  const long process = std::strtol(holder.process.c_str(), nullptr, 10);
  if (process <= 0 || process == ::getpid() || !is_running(static_cast<pid_t>(process))) return false;
  const std::string started = start_of(holder.process);
  return holder.started.empty() || started.empty() || started == holder.started;
}

enum class JobState { unknown, running, suspended, ended };

/// The state that the answer of `squeue -h -j JOB -o %T` says about the processes of a job.
/// @param exit_code  of squeue
JobState job_state_of(const std::string& answer, int exit_code) {
  static const std::map<std::string, JobState> kStates = {
      {"RUNNING", JobState::running},     {"COMPLETING", JobState::running},  {"CONFIGURING", JobState::running},
      {"SIGNALING", JobState::running},   {"STAGE_OUT", JobState::running},   {"RESIZING", JobState::running},
      {"SUSPENDED", JobState::suspended}, {"STOPPED", JobState::suspended},   {"PENDING", JobState::ended},
      {"COMPLETED", JobState::ended},     {"CANCELLED", JobState::ended},     {"FAILED", JobState::ended},
      {"TIMEOUT", JobState::ended},       {"OUT_OF_MEMORY", JobState::ended}, {"DEADLINE", JobState::ended},
  };
  if (exit_code != 0) {
    return answer.find("Invalid job id") != std::string::npos ? JobState::ended : JobState::unknown;
  }
  TextReader words(answer);
  std::string word;
  if (!(words >> word)) return JobState::ended;
  const auto found = kStates.find(word);
  return found == kStates.end() ? JobState::unknown : found->second;
}

/// Asks squeue, which answers within 5 s. Jobs of another cluster are unknown here.
JobState state_of_job(const LeaseHolder& holder, const LeaseHolder& me) {
  if (!is_number(holder.job) || holder.cluster != me.cluster) return JobState::unknown;
  const std::string command = "timeout -k 1 5 squeue -h -j " + holder.job + " -o %T 2>&1";
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return JobState::unknown;
  std::array<char, 512> answer{};
  const std::size_t length = std::fread(answer.data(), 1, answer.size(), pipe);
  const int status = ::pclose(pipe);
  return job_state_of({answer.data(), length}, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

LeaseVerdict judge_by_age(std::chrono::seconds age) {
  if (age > kDeadAfter) return {.is_dead = true};
  const std::string stop = "stop it, or choose another --run.dir; if it has ended, ";
  if (age < -kClockStep) return {.remedy = stop + "delete the file LEASE"};
  return {.remedy = stop + "wait " + std::to_string((kDeadAfter - age).count() + 1) + " s or delete the file LEASE"};
}

constexpr std::chrono::milliseconds kLookEvery{50};
constexpr const char* kLease = "LEASE";

/// Keeps other processes of this host from taking a lease in the same folder. Between hosts, take_away() decides.
class FolderLock {
 public:
  explicit FolderLock(const std::string& directory) : file_(::open(directory.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ >= 0) ::flock(file_, LOCK_EX);  // some file systems cannot
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_;
};

std::string new_file(const std::string& directory, const char* name, const std::string& text) {
  std::string path = directory + "/" + temporary_name(name);
  if (exists(path)) remove_tree(path);
  NewFile file(path);
  file.write(0, std::as_bytes(std::span(text)));
  file.close();
  return path;
}

[[noreturn]] void throw_just_started(const std::string& path) {
  throw CheckpointError(path, "another run has just started to write to this folder; choose another --run.dir");
}

/// The file gets its name once it is whole: a run that is killed meanwhile leaves no lease without a holder.
void write_holder(const std::string& directory, const std::string& text) {
  const std::string temporary = new_file(directory, kLease, text);
  const std::string path = directory + "/" + kLease;
  if (::link(temporary.c_str(), path.c_str()) == 0) {
    ::unlink(temporary.c_str());
    return;
  }
  if (errno == EEXIST) {
    ::unlink(temporary.c_str());
    throw_just_started(path);
  }
  move(temporary, path);  // the file system has no hard links
}

/// Removes the lease of a holder that has ended. A lease that another run has put there meanwhile is put back.
void take_away(const std::string& directory, const std::string& text) {
  const std::string path = directory + "/" + kLease;
  const std::string aside = directory + "/" + temporary_name("LEASE-before");
  if (exists(aside)) remove_tree(aside);
  if (::rename(path.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw_errno(path, "rename");
  }
  const bool is_same = read_holder(aside).text() == text;
  if (!is_same) static_cast<void>(::link(aside.c_str(), path.c_str()));
  remove_tree(aside);
  if (!is_same) throw_just_started(path);
}

/// The age of a file by the clock of its file system: that of a file which is written now beside it.
std::chrono::seconds age_by_file_system(const std::string& directory, const std::string& path) {
  const std::string probe = new_file(directory, "CLOCK", "now\n");
  struct stat now {};
  struct stat then {};
  const bool is_known = ::stat(probe.c_str(), &now) == 0 && ::stat(path.c_str(), &then) == 0;
  ::unlink(probe.c_str());
  return std::chrono::seconds(is_known ? now.st_mtim.tv_sec - then.st_mtim.tv_sec : 0);
}

std::string age_text(std::chrono::seconds age) {
  if (age < std::chrono::seconds(0)) return std::to_string(-age.count()) + " s in the future";
  return std::to_string(age.count()) + " s ago";
}

}  // namespace

bool LeaseHolder::is_named() const { return !host.empty() && is_number(process) && process != "0"; }

std::string LeaseHolder::text() const {
  std::string text;
  for (const auto& [name, field] : kLeaseFields) {
    if (!(this->*field).empty()) text += std::string(name) + " " + this->*field + "\n";
  }
  return text + (job.empty() ? "" : "restarts " + std::to_string(restarts) + "\n");
}

void end_lease(const std::string& directory, const std::string& holder) {
  const std::string path = directory + "/" + kLease;
  if (exists(path) && read_holder(path).text() == holder) take_away(directory, holder);
}

std::string LeaseHolder::describe() const {
  if (!is_named()) return "a file LEASE that names no run";
  return "process " + process + " on " + host + (job.empty() ? "" : " (Slurm job " + job + ")");
}

LeaseHolder this_holder() {
  const std::string process = std::to_string(::getpid());
  return {.host = host_name(),
          .process = process,
          .system = this_system(),
          .started = start_of(process),
          .job = variable("SLURM_JOB_ID"),
          .cluster = variable("SLURM_CLUSTER_NAME"),
          .restarts = std::strtol(variable("SLURM_RESTART_COUNT").c_str(), nullptr, 10)};
}

LeaseHolder read_holder(const std::string& path) {
  errno = 0;
  FileReader file(path);
  if (!file && exists(path)) throw_errno(path, "open");
  std::map<std::string, std::string> fields;
  std::string key;
  std::string value;
  while (fields.size() < kMaxFields && file >> key >> value) fields[key] = value.substr(0, kMaxLength);
  LeaseHolder holder;
  holder.restarts = std::strtol(fields["restarts"].c_str(), nullptr, 10);
  for (const auto& [name, field] : kLeaseFields) holder.*field = fields[name];
  return holder;
}

LeaseVerdict judge(const LeaseHolder& holder, std::chrono::seconds age) {
  if (!holder.is_named()) return {.is_dead = true};
  const LeaseHolder me = this_holder();
  if (is_on_this_system(holder, me)) {
    return {.is_dead = !is_alive(holder), .is_local = true, .remedy = "stop it, or choose another --run.dir"};
  }
  const bool is_my_job = !holder.job.empty() && holder.job == me.job && holder.cluster == me.cluster;
  if (is_my_job && me.restarts > holder.restarts) return {.is_dead = true};
  if (holder.job.empty() || is_my_job) return judge_by_age(age);
  switch (state_of_job(holder, me)) {
    case JobState::ended:
      return {.is_dead = true};
    case JobState::suspended:
      return {.remedy = "Slurm has suspended this job: resume or cancel it, or choose another --run.dir"};
    case JobState::running:
    case JobState::unknown:
      break;
  }
  return judge_by_age(age);
}

Lease::Lease(const std::string& directory, std::chrono::seconds patience, std::chrono::milliseconds renew_every)
    : directory_(directory), path_(directory + "/" + kLease), mine_(this_holder().text()) {
  make_folders(directory);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!try_to_take(std::chrono::steady_clock::now() < deadline)) std::this_thread::sleep_for(kLookEvery);
  renewer_ = std::jthread([this, renew_every](const std::stop_token& stop) { keep_renewing(stop, renew_every); });
}

/// @param can_wait  a holder on this host that has not ended is no error yet
/// @return          whether the lease was taken
bool Lease::try_to_take(bool can_wait) {
  const FolderLock lock(directory_);
  if (exists(path_)) {
    const LeaseHolder holder = read_holder(path_);
    const std::chrono::seconds age = age_by_file_system(directory_, path_);
    const LeaseVerdict verdict = judge(holder, age);
    if (!verdict.is_dead && verdict.is_local && can_wait) return false;
    if (!verdict.is_dead) {
      throw CheckpointError(path_, "another run writes checkpoints to this folder: " + holder.describe() +
                                       ", last active " + age_text(age) + "; " + verdict.remedy);
    }
    taken_from_ = holder.describe();
    take_away(directory_, holder.text());
  }
  write_holder(directory_, mine_);
  return true;
}

Lease::~Lease() {
  renewer_.request_stop();
  if (renewer_.joinable()) renewer_.join();
  try {
    if (exists(path_) && read_holder(path_).text() == mine_) ::unlink(path_.c_str());
  } catch (const std::exception&) {  // it stays, and names a process that has ended
  }
}

void Lease::keep_renewing(const std::stop_token& stop, std::chrono::milliseconds every) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, every, [] { return false; });
    if (!stop.stop_requested()) renew();
  }
}

/// A lease that was deleted by hand is written again; a disk that cannot be read now is looked at again later.
void Lease::renew() noexcept {
  try {
    if (!exists(path_)) return write_holder(directory_, mine_);
    const LeaseHolder holder = read_holder(path_);
    is_lost_ = holder.is_named() && holder.text() != mine_;
    if (!is_lost_) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
  } catch (const std::exception&) {
  }
}

void Lease::require() {
  if (!exists(path_)) return;
  const LeaseHolder holder = read_holder(path_);
  is_lost_ = holder.is_named() && holder.text() != mine_;
  if (!is_lost_) return;
  throw CheckpointError(path_, "another run has taken over this folder: " + holder.describe() +
                                   "; this run ends without another checkpoint");
}

}  // namespace lockstep::checkpoints
