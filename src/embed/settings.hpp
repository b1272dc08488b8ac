// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <string>
#include <vector>

#include "config/config.hpp"

namespace lockstep::embed {

/// The configuration of a session.
struct SessionConfig {
  config::Config config;
  std::string checkpoint = {};  ///< from=RUN: the checkpoint with the weights; empty = none
  bool predicts_only = false;   ///< purpose=predict
  bool is_producer = false;     ///< embed.role=producer: this rank only produces samples
};

/// Reads the settings of a session: "key=value", "config=FILE", "from=RUN",
/// "purpose=train" or "purpose=predict", and "embed.role=trainer" or "embed.role=producer", which alone may differ
/// between ranks. Samples come from arrays, whose shapes are those of the run of `from` by default. Collective.
/// @throws ConfigError, CheckpointError  on every rank
SessionConfig read_settings(const mpi::Communicator& world, const std::vector<std::string>& settings,
                            const engine::Registry& registry);

/// @throws ConfigError  MPI is not initialized, or the program has another MPI library than Lockstep: states both
void require_mpi();

}  // namespace lockstep::embed
