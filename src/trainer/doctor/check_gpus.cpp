// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

Findings check_gpus(const Patient& patient) {
  Findings found;
  const std::string& first = patient.ranks.front().gpu;
  if (const auto other = first_other(patient, [](const DoctorFacts& rank) { return rank.gpu; })) {
    const std::string& name = patient.ranks[*other].gpu;
    found.push_back(warning("rank 0 has " + (first.empty() ? "no GPU" : first) + ", but " +
                                rank_on_host(patient, *other) + " " + (name.empty() ? "none" : name),
                            "request the same GPUs on all hosts, or set run.device=cpu"));
  }
  const std::string& driver = patient.ranks.front().gpus.driver;
  for (const auto& [host, ranks] : patient.ranks_of_host) {
    const GpuFacts& gpus = patient.ranks[ranks.front()].gpus;
    for (const std::string& error : gpus.errors) {
      found.push_back(warning(host + ": " + error,
                              "nvidia-smi -q -d ECC,ROW_REMAPPER; reset the GPU (nvidia-smi -r), "
                              "or leave the host out (Slurm --exclude=" +
                                  host + ")"));
    }
    if (driver.empty() || gpus.driver.empty() || gpus.driver == driver) continue;
    found.push_back(warning("the driver of the GPUs is " + driver + " on " + patient.ranks.front().host + ", but " +
                                gpus.driver + " on " + host,
                            "install the same driver on all hosts"));
  }
  if (!found.empty()) return found;
  const auto& versions = patient.ranks.front().versions;
  const auto nccl = versions.find("NCCL");
  return {fine((first.empty() ? "none is used" : first + " on each rank") +
               (driver.empty() ? "" : ", driver " + driver) +
               (nccl == versions.end() ? "" : ", NCCL " + nccl->second))};
}

}  // namespace lockstep::trainer
