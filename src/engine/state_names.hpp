// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/section.hpp>

#include <string>
#include <utility>
#include <vector>

// Where a run's state lies in an archive. checkpoints/FORMAT.md is the law.
namespace lockstep::engine {

inline const std::string kModel = "/model";
inline const std::string kParameters = kModel + "/params";
inline const std::string kBuffers = kModel + "/buffers";
inline const std::string kAverage = "/ema";
inline const std::string kAverageParameters = kAverage + "/params";
inline const std::string kAverageBuffers = kAverage + "/buffers";
inline const std::string kOptimizer = "/optim/0";
inline const std::string kHooks = "/hooks";
inline const std::string kCommHook = "/comm/hook";
inline const std::string kBuckets = "/comm/buckets";

inline std::string path(const std::string& group, const std::string& name) {
  return group + "/" + checkpoints::encode_name(name);
}

/// Beginnings of names, and what to put in their place; the first that fits counts.
using Renames = std::vector<std::pair<std::string, std::string>>;

/// Key `rename` of a section.
/// @throws ConfigError  an entry that is not of the form FROM=TO
Renames renames_of(const Section& section);
std::string new_name(const std::string& name, const Renames& renames);

/// The archive with other names for its parameters and buffers, in the optimizer too.
checkpoints::Archive renamed(const checkpoints::Archive& archive, const Renames& renames);

}  // namespace lockstep::engine
