// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

Findings check_slurm(const Patient& patient) {
  if (patient.job.empty()) return {fine("no Slurm job")};
  const auto value = [&](const char* name) {
    const auto found = patient.job.find(name);
    return found == patient.job.end() ? std::string() : found->second;
  };
  Findings found;
  if (value("Requeue") == "0") {
    found.push_back(warning("job " + value("JobId") + " is not requeued when a host fails", "sbatch --requeue"));
  }
  if (value("TimeLimit") == "UNLIMITED" || value("TimeLimit").empty()) {
    found.push_back(fine("job " + value("JobId") + " has no time limit"));
  } else {
    found.push_back(fine("job " + value("JobId") + " has a time limit of " + value("TimeLimit") +
                         "; the run saves before it and ends"));
  }
  return found;
}

}  // namespace lockstep::trainer
