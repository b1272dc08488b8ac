// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/process_facts.hpp"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <unistd.h>

#include "core/text/text.hpp"

namespace lockstep {

namespace {

namespace fs = std::filesystem;

/// The text of a file in /proc or /sys; "" = it cannot be read.
std::string text_of_file(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The number after `name` at the start of a line of `text`.
std::optional<std::int64_t> number_after(const std::string& text, const std::string& name) {
  for (const std::string& row : lines_in(text)) {
    const std::vector<std::string> words = words_in(row, ' ');
    if (words.size() == 2 && words[0] == name) return std::atoll(words[1].c_str());
  }
  return std::nullopt;
}

/// Folders in which the files of a control group may be: that of the group, and that of the mount, which is the group
/// itself in a container.
struct GroupPlace {
  std::vector<fs::path> folders;
  const char* file;
};

std::vector<GroupPlace> memory_groups(const fs::path& root) {
  const fs::path mount = root / "sys/fs/cgroup";
  std::vector<GroupPlace> places;
  for (const std::string& row : lines_in(text_of_file(root / "proc/self/cgroup"))) {
    const std::vector<std::string> parts = split(row, ':');
    if (parts.size() < 3) continue;
    const fs::path group = fs::path(parts[2]).relative_path();
    if (parts[1].empty()) places.push_back({{mount / group, mount / "unified" / group, mount}, "memory.events"});
    if (parts[1] == "memory") places.push_back({{mount / "memory" / group, mount / "memory"}, "memory.oom_control"});
  }
  return places;
}

/// The first bytes of the build id in the notes of a program.
std::uint64_t build_id_in(const char* notes, std::size_t bytes) {
  constexpr std::size_t kAligned = 4;
  const auto rounded = [](std::size_t size) { return (size + kAligned - 1) / kAligned * kAligned; };
  for (std::size_t place = 0; place + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note{};
    std::memcpy(&note, notes + place, sizeof note);
    const std::size_t begin = place + sizeof note + rounded(note.n_namesz);
    std::uint64_t id = 0;
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz >= sizeof id && begin + sizeof id <= bytes) {
      std::memcpy(&id, notes + begin, sizeof id);
      return id;
    }
    place = begin + rounded(note.n_descsz);
  }
  return 0;
}

/// Looks at the first object, which is the program itself.
int find_build_id(dl_phdr_info* object, std::size_t, void* result) {
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = object->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const std::uint64_t id = build_id_in(reinterpret_cast<const char*>(object->dlpi_addr + part.p_vaddr), part.p_memsz);
    if (id != 0) *static_cast<std::uint64_t*>(result) = id;
  }
  return 1;
}

}  // namespace

bool is_gone(char state) { return state == 'Z' || state == 'X' || state == 'x'; }

bool is_stopped(char state) { return state == 'T' || state == 't'; }

std::string state_text(char state) {
  if (is_gone(state)) return "is gone";
  if (is_stopped(state)) return "is stopped";
  if (state == 'R') return "runs";
  if (state == 'S' || state == 'I') return "sleeps";
  return state == 'D' ? "waits for a disk" : "";
}

std::string signal_text(int signal) {
  const char* const name = sigabbrev_np(signal);
  return std::to_string(signal) + (name == nullptr ? "" : " (" + std::string(name) + ")");
}

ProcessFacts parse_process_stat(const std::string& text) {
  // The name of the program is in parentheses and can contain anything.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  const std::vector<std::string> words = words_in(text.substr(end + 1), ' ');
  constexpr std::size_t kPages = 21;   // field 24 of proc(5); the first word is field 3
  constexpr std::size_t kStatus = 49;  // field 52
  if (words.empty()) return {};
  ProcessFacts facts{.state = words[0][0]};
  if (words.size() > kPages) {
    const auto page_bytes = static_cast<double>(sysconf(_SC_PAGESIZE));
    facts.memory_mb = static_cast<double>(std::atoll(words[kPages].c_str())) * page_bytes / (1 << 20);
  }
  facts.has_status = is_gone(facts.state) && words.size() > kStatus;
  if (facts.has_status) facts.exit_status = std::atoi(words[kStatus].c_str());
  return facts;
}

ProcessFacts process_facts(pid_t pid, const std::string& root) {
  return parse_process_stat(text_of_file(fs::path(root) / "proc" / std::to_string(pid) / "stat"));
}

std::vector<ThreadFacts> threads_of(pid_t pid, std::size_t most, const std::string& root) {
  std::vector<ThreadFacts> threads;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(root) / "proc" / std::to_string(pid) / "task", ignored)) {
    if (threads.size() == most) break;
    ThreadFacts facts{.id = std::atoi(entry.path().filename().c_str())};
    facts.name = trimmed(text_of_file(entry.path() / "comm"));
    facts.state = parse_process_stat(text_of_file(entry.path() / "stat")).state;
    facts.kernel = trimmed(text_of_file(entry.path() / "wchan"));
    if (facts.kernel == "0") facts.kernel.clear();
    threads.push_back(std::move(facts));
  }
  std::ranges::sort(threads, {}, &ThreadFacts::id);
  return threads;
}

std::optional<std::int64_t> memory_kills(const std::string& root) {
  std::optional<std::int64_t> kills;
  for (const GroupPlace& place : memory_groups(root)) {
    for (const fs::path& folder : place.folders) {
      const auto number = number_after(text_of_file(folder / place.file), "oom_kill");
      if (!number) continue;
      kills = kills.value_or(0) + *number;
      break;
    }
  }
  return kills;
}

std::uint64_t program_id() {
  std::uint64_t id = 0;
  dl_iterate_phdr(find_build_id, &id);
  return id;
}

}  // namespace lockstep
