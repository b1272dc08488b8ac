// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/process/slurm.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>

#include "core/text/duration.hpp"
#include "mpi/process/launch.hpp"

namespace lockstep::mpi {

namespace {

/// The first word that a command prints; empty when it fails.
std::string first_word_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "re"), ::pclose);
  std::array<char, 64> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "";
  const std::string text = line.data();
  return text.substr(0, text.find_first_of(" \n"));
}

}  // namespace

std::optional<SlurmJob> slurm_job() { return slurm_job_of(current_variables()); }

std::optional<double> seconds_left(const SlurmJob& job) {
  if (job.end) {
    const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
    return *job.end - now.count();
  }
  return parse_duration(first_word_of("timeout -k 1 5 squeue -h -j " + job.id + " -O TimeLeft 2>/dev/null"));
}

}  // namespace lockstep::mpi
