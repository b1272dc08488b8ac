// SPDX-License-Identifier: BSD-3-Clause
#include "support/program.hpp"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <poll.h>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::testing {

namespace fs = std::filesystem;

namespace {

/// An empty value counts: MPICH has no flags.
std::string environment(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

/// Reads both ends until every writer has closed them; false if that takes longer than the limit.
bool read_until(std::array<int, 2> ends, double limit_s, std::array<std::string, 2>& texts) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  std::array<char, 4096> buffer{};
  std::array<pollfd, 2> readable{{{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}}};
  while (readable[0].fd >= 0 || readable[1].fd >= 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (poll(readable.data(), readable.size(), static_cast<int>(left.count())) <= 0) continue;
    for (std::size_t i = 0; i < readable.size(); ++i) {
      if (readable[i].fd < 0 || readable[i].revents == 0) continue;
      const ssize_t got = read(readable[i].fd, buffer.data(), buffer.size());
      if (got > 0) {
        texts[i].append(buffer.data(), static_cast<std::size_t>(got));
      } else {
        readable[i].fd = -1;
      }
    }
  }
  return true;
}

}  // namespace

ProgramResult run_shell(const std::string& command, double limit_s) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    execl("/bin/bash", "bash", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  // mpirun passes both on as they arrive, so that a line of one can lie inside a line of the other.
  std::array<std::string, 2> texts;
  const bool is_in_time = read_until({out[0], err[0]}, limit_s, texts);
  close(out[0]);
  close(err[0]);
  ProgramResult outcome;
  outcome.output = texts[0] + texts[1];
  if (!is_in_time) kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (!is_in_time) outcome.exit_code = 124;
  return outcome;
}

std::string trainer_program() { return "'" + environment("LOCKSTEP_BINARY_DIR", ".") + "/trainer'"; }

std::string ckpt_program() { return "'" + environment("LOCKSTEP_BINARY_DIR", ".") + "/ckpt'"; }

std::string mpirun_command(int ranks) {
  return environment("LOCKSTEP_MPIRUN", "mpirun") + " " +
         environment("LOCKSTEP_MPIRUN_FLAGS", "--oversubscribe --bind-to none") + " -np " + std::to_string(ranks);
}

ProgramResult run_ranks(int ranks, const std::string& arguments, double limit_s, const std::string& variables) {
  const TemporaryFolder codes;
  // Every rank's shell notes what its trainer returned; mpirun itself tells of one rank only. Each waits for a moment
  // until all have, for mpirun ends the others when one returns an error: here at once, else two seconds later.
  const fs::path script = codes / "rank.sh";
  write_file(script, "#!/bin/bash\n" + trainer_program() + R"sh( "$@"
code=$?
cd "$(dirname "$0")"
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK} # Open MPI; MPICH
echo $code >$rank.part
mv $rank.part $rank.code
for i in {1..30}; do
  (($(ls *.code | wc -l) < )sh" +
                         std::to_string(ranks) + R"sh()) || break
  sleep 0.1
done
exit $code
)sh");
  fs::permissions(script, fs::perms::owner_all);
  ProgramResult outcome = run_shell(variables + " OMPI_MCA_odls_base_sigkill_timeout=0 " + mpirun_command(ranks) +
                                        " '" + script.string() + "' " + arguments,
                                    limit_s);
  for (int rank = 0; rank < ranks; ++rank) {
    std::ifstream file(codes / (std::to_string(rank) + ".code"));
    int code = -1;
    file >> code;
    outcome.rank_codes.push_back(code);
  }
  return outcome;
}

std::vector<std::string> error_lines(const std::string& output) {
  std::vector<std::string> errors;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(" error ") != std::string::npos) errors.push_back(line);
  }
  return errors;
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
}

}  // namespace lockstep::testing
