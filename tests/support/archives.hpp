// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <algorithm>
#include <string>

namespace lockstep::testing {

/// Paths of what differs between two checkpoints of a run, "" when nothing does. What tells where and how a run was
/// started (configuration, ranks, their generators) does not count.
inline std::string differences(const checkpoints::Archive& left, const checkpoints::Archive& right) {
  const auto counts = [](const std::string& path) { return !path.starts_with("/meta/") && !path.starts_with("/rng/"); };
  std::string text;
  if (left.array_paths() != right.array_paths()) text += "paths ";
  for (const std::string& path : left.array_paths()) {
    if (!counts(path) || !right.has(path)) continue;
    const auto& x = left.array(path);
    const auto& y = right.array(path);
    const bool is_same = x.shape == y.shape && x.dtype == y.dtype &&
                         std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin(), y.bytes.end());
    if (!is_same) text += path + " ";
  }
  for (const char* name : {"step", "epoch", "samples_seen"}) {
    if (left.integer("/", name) != right.integer("/", name)) text += std::string("/@") + name + " ";
  }
  return text;
}

}  // namespace lockstep::testing
