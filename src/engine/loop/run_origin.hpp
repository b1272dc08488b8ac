// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <string>

namespace lockstep::engine {

/// The origin of a run. It is stored in every checkpoint for information.
struct RunOrigin {
  std::string run_id = {};            ///< 16 hexadecimal digits that no other run has
  std::string environment_json = {};  ///< environment of this start, as JSON
  std::string parent_digest = {};     ///< digest of the checkpoint that this start resumed from; empty = none
  std::string lineage = {};           ///< a line for each checkpoint that the run was resumed from, oldest first
};

/// The same on every rank; 64 bits of the system's entropy. Collective.
std::string new_run_id(const mpi::Communicator& world);

}  // namespace lockstep::engine
