// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/run_environment.hpp"

#include <lockstep/mpi/communicator.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <unistd.h>

#include "core/numbers/processor_level.hpp"
#include "core/text/text.hpp"
#include "engine/session.hpp"
#include "mpi/gpu/gpu.hpp"
#include "report/files/metrics.hpp"

namespace lockstep::trainer {

namespace {

constexpr std::array<std::string_view, 7> kPrefixes = {"OMPI_MCA_", "MPIR_CVAR_", "SLURM_JOB", "SLURM_N",
                                                       "OMP_",      "MKL_",       "LOCKSTEP_"};

bool is_told(std::string_view variable) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [variable](std::string_view prefix) { return variable.starts_with(prefix); });
}

}  // namespace

std::string environment_json(int world_size, const std::vector<std::string>& hosts,
                             const std::vector<std::string>& gpus) {
  NamedValues facts = {{"world_size", static_cast<std::int64_t>(world_size)},
                       {"hosts", joined(hosts, " ")},
                       {"mpi", mpi::library_version()}};
  if (!gpus.empty()) facts.emplace_back("gpus", joined(gpus, ", "));
  facts.emplace_back("launcher", mpi::launcher());
  for (const auto& [name, value] : engine::platform_facts()) facts.emplace_back(name, value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos || !is_told(text)) continue;
    facts.emplace_back(std::string(text.substr(0, equals)), std::string(text.substr(equals + 1)));
  }
  return report::to_json(facts, 2) + "\n";
}

std::string version_lines() {
  std::string lines = mpi::library_version();
  for (const auto& [name, value] : engine::platform_facts()) {
    if (name == "libtorch" || name == "hdf5" || name == "processor_level") lines += "\n" + name + " " + value;
  }
  const std::string gpu = mpi::gpu_name(/*local_rank=*/0);
  if (!gpu.empty()) lines += "\ngpu " + gpu;
  for (const auto& [variable, value] : library_limits()) lines += "\n" + variable + "=" + value;
  return lines;
}

std::string environment_line() {
  std::string line = "environment: " + mpi::library_version() + ", launcher " + mpi::launcher();
  for (const auto& [name, value] : engine::platform_facts()) line += ", " + name + " " + value;
  return line;
}

}  // namespace lockstep::trainer
