// SPDX-License-Identifier: BSD-3-Clause
#include "report/files/run_files.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

#include "core/system/memory.hpp"
#include "core/text/text.hpp"
#include "report/files/metrics.hpp"

namespace lockstep::report {

namespace {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

std::string name_of(RunState state) {
  static const std::array<const char*, 4> names = {"running", "done", "stopped", "failed"};
  return names.at(static_cast<std::size_t>(state));
}

bool is_plain(char c) {
  static const std::string others = "_-./=:,+@%";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         others.find(c) != std::string::npos;
}

std::string shell_word(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// 0, or the errno of what went wrong.
int write_whole(const std::string& path, std::string_view text) {
  File file(std::fopen(path.c_str(), "we"), std::fclose);
  if (!file) return errno;
  if (std::fwrite(text.data(), 1, text.size(), file.get()) != text.size()) return errno;
  return std::fclose(file.release()) == 0 ? 0 : errno;
}

std::string class_of(ExitCode code) {
  static const std::map<ExitCode, const char*> names = {
      {ExitCode::configuration, "ConfigError"},  {ExitCode::data, "DataError"},
      {ExitCode::checkpoint, "CheckpointError"}, {ExitCode::communication, "CommError"},
      {ExitCode::numeric, "NumericError"},       {kOutOfMemory, "OutOfMemory"}};
  const auto found = names.find(code);
  return found == names.end() ? "InternalError" : found->second;
}

}  // namespace

void make_run_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw ConfigError("run folder " + path + " cannot be created: " + error.message());
  const std::string probe = path + "/.writable." + std::to_string(::getpid());
  const int reason = write_whole(probe, "probe\n");
  ::unlink(probe.c_str());
  if (reason != 0) throw ConfigError("run folder " + path + " cannot be written to: " + std::strerror(reason));
}

std::string make_new_folder(const std::string& parent, const std::string& stem) {
  constexpr int kMaxTries = 10000;
  make_run_folder(parent);
  std::string name = stem;
  for (int i = 2; ::mkdir((parent + "/" + name).c_str(), 0777) != 0; ++i) {
    if (errno != EEXIST || i > kMaxTries) {
      throw ConfigError("run folder " + parent + "/" + name + " cannot be created: " + std::strerror(errno));
    }
    name = stem + "-" + std::to_string(i);
  }
  return name;
}

void write_text(const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  int reason = write_whole(temporary, text);
  if (reason == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) reason = errno;
  if (reason == 0) return;
  ::unlink(temporary.c_str());
  throw ConfigError(path + " cannot be written: " + std::strerror(reason));
}

std::optional<std::string> read_text(const std::string& path) {
  const auto fault = [&path](int reason) { return ConfigError(path + " cannot be read: " + std::strerror(reason)); };
  const File file(std::fopen(path.c_str(), "re"), std::fclose);
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) throw fault(errno);
  std::string text;
  std::array<char, 1 << 16> block{};
  while (const std::size_t n = std::fread(block.data(), 1, block.size(), file.get())) text.append(block.data(), n);
  if (std::ferror(file.get()) != 0) throw fault(errno);
  return text;
}

std::string whole_lines(const std::string& text) {
  const std::size_t end = text.rfind('\n');
  return end == std::string::npos ? "" : text.substr(0, end + 1);
}

std::string shell_line(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& word : arguments) words.push_back(shell_word(word));
  return joined(words, " ") + "\n";
}

void write_status(const std::string& folder, const RunStatus& status) {
  NamedValues fields = {{"state", name_of(status.state)}, {"step", status.step}};
  if (status.total_steps > 0) fields.emplace_back("total_steps", status.total_steps);
  if (status.eta_seconds) fields.emplace_back("eta_seconds", *status.eta_seconds);
  if (!status.last_error.empty()) fields.emplace_back("last_error", status.last_error);
  if (status.exit_code) fields.emplace_back("exit_code", std::int64_t{*status.exit_code});
  write_text(folder + "/STATUS.json", to_json(fields, 2) + "\n");
}

void write_failure(const std::string& folder, const std::exception& error, int rank, std::int64_t step) {
  const auto* const ours = dynamic_cast<const Error*>(&error);
  const ExitCode code = ours != nullptr ? ours->exit_code() : ExitCode::internal;
  const NamedValues fields = {{"class", class_of(code)},
                              {"message", message_of(error)},
                              {"exit_code", static_cast<std::int64_t>(code)},
                              {"rank", std::int64_t{rank}},
                              {"step", step}};
  write_text(folder + "/failure.json", to_json(fields, 2) + "\n");
}

}  // namespace lockstep::report
