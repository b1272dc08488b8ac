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
  return {
      fine(fmt::format("a rank holds {:.3g} MB, and a host {:.3g} MB more that its ranks share, without "
                       "activations; a checkpoint has {:.3g} MB",
                       first.own_mb + first.bucket_mb, first.shared_mb, first.checkpoint_mb))};
}

}  // namespace lockstep::trainer
