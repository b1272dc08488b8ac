// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/store/lease_holder.hpp"

#include <lockstep/core/error.hpp>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "checkpoints/disk/stale_files.hpp"
#include "core/system/process.hpp"
#include "core/text/text_stream.hpp"

namespace lockstep::checkpoints {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxFields = 16;
constexpr std::size_t kMaxLength = 256;
constexpr std::chrono::seconds kDeadAfter{600};
constexpr std::chrono::seconds kClockStep{2};  // smallest difference that is reported as one of clocks

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

}  // namespace

bool LeaseHolder::is_named() const { return !host.empty() && is_number(process) && process != "0"; }

std::string LeaseHolder::text() const {
  const auto line = [](const char* name, const std::string& value) {
    return value.empty() ? "" : std::string(name) + " " + value + "\n";
  };
  return line("host", host) + line("process", process) + line("system", system) + line("started", started) +
         line("job", job) + line("cluster", cluster) + (job.empty() ? "" : line("restarts", std::to_string(restarts)));
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
  return {.host = fields["host"],
          .process = fields["process"],
          .system = fields["system"],
          .started = fields["started"],
          .job = fields["job"],
          .cluster = fields["cluster"],
          .restarts = std::strtol(fields["restarts"].c_str(), nullptr, 10)};
}

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

}  // namespace lockstep::checkpoints
