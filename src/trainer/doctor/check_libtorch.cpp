// SPDX-License-Identifier: BSD-3-Clause
#include "core/text/text.hpp"
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

Findings check_libtorch(const Patient& patient) {
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const DoctorFacts& facts = patient.ranks[rank];
    if (facts.runtimes.size() < 2) continue;
    return {warning(rank_on_host(patient, rank) + " has loaded OpenMP twice: " + joined(facts.runtimes),
                    "remove one from LD_PRELOAD and LD_LIBRARY_PATH: two pools of threads share the processors")};
  }
  const auto found = patient.ranks.front().versions.find("libtorch");
  return {fine("version " + (found == patient.ranks.front().versions.end() ? std::string("unknown") : found->second))};
}

}  // namespace lockstep::trainer
