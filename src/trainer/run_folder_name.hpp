// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <string>

namespace lockstep::trainer {

/// The name and the folder of a run, with values in place of the words in braces of run.name and run.dir.
struct RunFolderName {
  std::string name;
  std::string dir;          ///< "" = neither of the keys is set
  bool names_time = false;  ///< they contain the start time: each start has a folder of its own
};

/// The words have the values of rank 0. Collective.
/// @param run  section `run`
/// @throws ConfigError  a word is unknown or has no value, or the name is a path; on every rank
RunFolderName run_folder_name(const mpi::Communicator& world, const Section& run);

}  // namespace lockstep::trainer
