// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::engine {

/// The origin of a run. It is stored in every checkpoint for information.
struct RunOrigin {
  std::string run_id = {};            ///< 16 hexadecimal digits that no other run has
  std::string environment_json = {};  ///< environment of this start, as JSON
  std::string parent_digest = {};     ///< digest of the checkpoint that this start resumed from; empty = none
  std::string lineage = {};           ///< a line for each checkpoint that the run was resumed from, oldest first
};

}  // namespace lockstep::engine
