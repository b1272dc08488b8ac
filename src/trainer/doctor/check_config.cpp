// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

Findings check_config(const Patient& patient) {
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const std::string& refusal = patient.ranks[rank].need.refusal;
    if (refusal.empty()) continue;
    return {fault(rank_on_host(patient, rank) + " cannot train: " + refusal,
                  "correct the keys, or make the files of the data readable on all hosts")};
  }
  const NeedFacts& first = patient.ranks.front().need;
  const std::string shared =
      first.shared_mb > 0 ? fmt::format(", its host {:.3g} MB more that the ranks share", first.shared_mb) : "";
  return {fine(fmt::format("rank 0 holds {:.3g} MB{}, without activations; a checkpoint has {:.3g} MB",
                           first.own_mb + first.bucket_mb, shared, first.checkpoint_mb))};
}

}  // namespace lockstep::trainer
