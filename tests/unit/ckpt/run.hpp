// SPDX-License-Identifier: BSD-3-Clause
// The program's entry in this process, or in a child where it changes what the process may do.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "ckpt/reading/commands.hpp"

namespace lockstep::ckpt {

/// The texts that the program returned and printed to both streams.
struct Ran {
  int code = 0;
  std::string output;
};

/// Both streams of this process, and of its children, go to a file while it lives.
class Capture {
 public:
  Capture() : file_(std::tmpfile()), kept_{::dup(STDOUT_FILENO), ::dup(STDERR_FILENO)} {
    if (file_ == nullptr) throw std::runtime_error("tmpfile failed");
    std::fflush(nullptr);
    ::dup2(::fileno(file_), STDOUT_FILENO);
    ::dup2(::fileno(file_), STDERR_FILENO);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    restore();
    std::fclose(file_);
  }
  std::string text() {
    restore();
    std::string all;
    char buffer[4096];
    std::rewind(file_);
    for (std::size_t got = 0; (got = std::fread(buffer, 1, sizeof buffer, file_)) > 0;) all.append(buffer, got);
    return all;
  }

 private:
  void restore() {
    std::fflush(nullptr);
    for (const int stream : {0, 1}) {
      if (kept_[stream] < 0) continue;
      ::dup2(kept_[stream], stream == 0 ? STDOUT_FILENO : STDERR_FILENO);
      ::close(kept_[stream]);
      kept_[stream] = -1;
    }
  }
  std::FILE* file_;
  int kept_[2];
};

inline Ran run_captured(const std::vector<std::string>& words) {
  Capture capture;
  const int code = static_cast<int>(run_here(words));
  return {code, capture.text()};
}

/// The code that a child returns that could not prepare; no exit code of ours.
constexpr int kNotAllowed = 99;

/// The same in a child, after `prepare`, which may leave its rights behind or mount something.
/// @param prepare  false = it is not allowed here
inline Ran run_in_child(const std::vector<std::string>& words, const std::function<bool()>& prepare) {
  Capture capture;
  const pid_t child = ::fork();
  if (child == 0) {
    const int code = prepare() ? static_cast<int>(run_here(words)) : kNotAllowed;
    std::fflush(nullptr);
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), capture.text()};
}

inline nlohmann::json json_of(std::vector<std::string> words) {
  words.emplace_back("--json");
  return nlohmann::json::parse(run_captured(words).output);
}

}  // namespace lockstep::ckpt
