// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/heal/recovery.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <unistd.h>
#include <vector>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

constexpr const char* kRecovery = "LOCKSTEP_RECOVERY";
constexpr const char* kResult = "LOCKSTEP_RESULT";

// Both numbers have as many digits always, so that lines are replaced in place.
constexpr std::size_t kStepLine = 0;
constexpr std::size_t kCodeLine = 18;
constexpr std::size_t kFolderLine = 27;

/// The number after a name; none = the line is something else, or was not written.
std::optional<std::int64_t> number_after(const std::string& name, const std::string& line) {
  if (!line.starts_with(name + " ")) return std::nullopt;
  return parse_integer(line.substr(name.size() + 1));
}

}  // namespace

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<Recovery> Recovery::of_environment() {
  const char* const text = std::getenv(kRecovery);
  if (text == nullptr) return std::nullopt;
  const std::vector<std::string> parts = lines_in(text);
  if (parts.size() != 3) return std::nullopt;
  return Recovery{.cause = parts[2],
                  .rung = 2,
                  .failed_at = parse_real(parts[0]).value_or(0),
                  .reached_step = parse_integer(parts[1]).value_or(0)};
}

std::string Recovery::text() const { return fmt::format("{:.3f}\n{}\n{}\n", failed_at, reached_step, cause); }

std::shared_ptr<ResultFile> ResultFile::of_environment() {
  const char* const path = std::getenv(kResult);
  return path == nullptr ? nullptr : std::make_shared<ResultFile>(path);
}

ResultFile::ResultFile(const std::string& path) : file_(::open(path.c_str(), O_WRONLY | O_CLOEXEC)) {}

ResultFile::~ResultFile() {
  if (file_ >= 0) ::close(file_);
}

void ResultFile::put(std::size_t offset, const std::string& text) const {
  [[maybe_unused]] const ssize_t written = ::pwrite(file_, text.data(), text.size(), static_cast<off_t>(offset));
}

void ResultFile::put_step(std::int64_t step) { put(kStepLine, fmt::format("step {:012}\n", step)); }

void ResultFile::put_code(ExitCode code) { put(kCodeLine, fmt::format("code {:03}\n", static_cast<int>(code))); }

void ResultFile::put_folder(const std::string& folder) { put(kFolderLine, "run " + folder + "\n"); }

ToldResult read_result(const std::string& path) {
  std::ifstream file(path);
  ToldResult result;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // Bytes that nobody has written are zeros.
  const auto line_at = [&text](std::size_t offset) {
    return offset < text.size() ? text.substr(offset, text.find('\n', offset) - offset) : std::string();
  };
  result.step = number_after("step", line_at(kStepLine));
  if (const auto code = number_after("code", line_at(kCodeLine))) result.code = static_cast<int>(*code);
  if (const std::string line = line_at(kFolderLine); line.starts_with("run ")) result.folder = line.substr(4);
  return result;
}

}  // namespace lockstep::trainer
