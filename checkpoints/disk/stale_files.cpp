// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoints/disk/stale_files.hpp"

#include <lockstep/core/error.hpp>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <signal.h>
#include <string_view>
#include <system_error>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "core/system/process.hpp"

namespace lockstep::checkpoints {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kTrash = ".trash-";
constexpr double kGivenUpAfter = 24 * 60 * 60;  // seconds

/// Whether `name`, ".tmp-<name>.<process>.<host>", names a process of this host that does not run.
bool is_of_dead_process(std::string_view name) {
  const std::size_t first_dot = name.find('.', kTemporary.size());
  const std::size_t second_dot = name.find('.', first_dot == std::string_view::npos ? first_dot : first_dot + 1);
  if (second_dot == std::string_view::npos || name.substr(second_dot + 1) != host_name()) return false;
  pid_t process = 0;
  const char* end = name.data() + second_dot;
  const auto parsed = std::from_chars(name.data() + first_dot + 1, end, process);
  if (parsed.ec != std::errc() || parsed.ptr != end || process <= 0) return false;
  return !is_running(process);
}

}  // namespace

bool is_running(pid_t process) {
  if (::kill(process, 0) != 0 && errno != EPERM) return false;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const auto end_of_name = stat.rfind(") ");
  return end_of_name == std::string::npos || stat[end_of_name + 2] != 'Z';
}

double seconds_since_change(const std::string& path) {
  std::error_code error;
  const auto changed = fs::last_write_time(path, error);
  return error ? 0 : std::chrono::duration<double>(fs::file_time_type::clock::now() - changed).count();
}

std::string temporary_name(const std::string& name) {
  return std::string(kTemporary) + name + "." + std::to_string(::getpid()) + "." + host_name();
}

void discard(const std::string& directory, const std::string& name) {
  const std::string trash = directory + "/" + std::string(kTrash) + name;
  if (exists(trash)) remove_tree(trash);
  move(directory + "/" + name, trash);
  sync_folder(directory);
  remove_tree(trash);
}

void remove_stale_files(const std::string& directory) {
  for (const std::string& name : names_in(directory)) {
    const std::string path = directory + "/" + name;
    const bool is_dead =
        name.starts_with(kTemporary) && (is_of_dead_process(name) || seconds_since_change(path) > kGivenUpAfter);
    if (is_dead || name.starts_with(kTrash)) remove_tree(path);
  }
}

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw CheckpointError(directory, "cannot be listed: " + error.message()).as(CheckpointFault::io);
  }
  return names;
}

}  // namespace lockstep::checkpoints
