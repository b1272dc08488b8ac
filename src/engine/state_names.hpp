// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <string>
#include <utility>
#include <vector>

// Where a run's state lies in an archive. checkpoints/FORMAT.md is the law.
namespace lockstep::engine {

inline const std::string kParameters = "/model/params";
inline const std::string kBuffers = "/model/buffers";
inline const std::string kOptimizer = "/optim/0";

inline std::string path(const std::string& group, const std::string& name) {
  return group + "/" + checkpoints::encode_name(name);
}

/// The archive with other names for its parameters and buffers, in the optimizer too.
/// @param renames  beginning of a name, and what to put in its place; the first that fits counts
checkpoints::Archive renamed(const checkpoints::Archive& archive,
                             const std::vector<std::pair<std::string, std::string>>& renames);

}  // namespace lockstep::engine
