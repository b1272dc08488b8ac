// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

/// Compares the space that is left with that of the checkpoints which exist at the same time.
void check_space(const FileFacts& files, const NeedFacts& need, Findings& found) {
  constexpr double kFreeGb = 1;
  const bool has_quota = files.quota_gb >= 0 && files.quota_gb < files.free_gb;
  const double left = has_quota ? files.quota_gb : files.free_gb;
  const double checkpoint_gb = need.checkpoints > 0 ? need.checkpoint_mb / 1e3 : 0;
  const double needed = checkpoint_gb * static_cast<double>(need.checkpoints);
  if (left >= std::max(kFreeGb, needed)) return;
  const std::string has = has_quota ? fmt::format("the quota of this user leaves {:.2f} GB in run.dir", left)
                                    : fmt::format("run.dir has {:.2f} GB free", left);
  const std::string remedy = std::string(has_quota ? "request a larger quota, " : "") +
                             "delete old checkpoints (ckpt prune), or set ckpt.keep_last";
  if (left < checkpoint_gb) {
    found.push_back(fault(fmt::format("{}, but a checkpoint needs {:.2f} GB", has, checkpoint_gb), remedy));
  } else if (left < needed) {
    found.push_back(warning(
        fmt::format("{}, but {} checkpoints (ckpt.keep_last + 1) need {:.2f} GB", has, need.checkpoints, needed),
        remedy));
  } else {
    found.push_back(warning(has, remedy));
  }
}

}  // namespace

Findings check_files(const Patient& patient) {
  if (patient.folder.empty()) return {fine("not tried, because run.dir is not set")};
  constexpr double kClock = 2;  // seconds
  Findings found;
  double slowest = 0;
  for (std::size_t rank = 0; rank < patient.ranks.size(); ++rank) {
    const FileFacts& files = patient.ranks[rank].files;
    slowest = std::max(slowest, files.sync_ms);
    if (!files.fault.empty()) {
      found.push_back(fault(rank_on_host(patient, rank) + ": " + files.fault,
                            "make " + patient.folder + " writable, or choose another run.dir"));
    } else if (!files.sees_first_rank) {
      found.push_back(fault(rank_on_host(patient, rank) + " does not see what rank 0 wrote to " + patient.folder,
                            "set run.dir to a folder of a file system that all hosts share"));
    } else if (std::abs(files.clock_ahead_s) > kClock) {
      found.push_back(warning(fmt::format("the clock of {} and that of run.dir differ by {:.1f} s",
                                          patient.ranks[rank].host, std::abs(files.clock_ahead_s)),
                              "synchronize the clocks (chronyc makestep): the lease of a run counts seconds"));
    } else {
      continue;
    }
    return found;
  }
  const FileFacts& first = patient.ranks.front().files;
  check_space(first, patient.ranks.front().need, found);
  found.push_back(fine(fmt::format("all ranks write 1 MB to run.dir{} in at most {:.0f} ms; {:.0f} GB free",
                                   first.type.empty() ? "" : " (" + first.type + ")", slowest, first.free_gb)));
  return found;
}

}  // namespace lockstep::trainer
