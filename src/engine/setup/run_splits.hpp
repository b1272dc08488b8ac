// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/task.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/data/transform.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <initializer_list>
#include <optional>
#include <string>

namespace lockstep::engine {

/// The facts of a run for its data.
data::OpenOptions open_options(const Sections& sections, const Registry& registry);

/// The splits with these names.
data::UsedSplits used_splits(std::initializer_list<std::string> names);

/// Opens the data of a run on all ranks and logs the remarks of the source. One rank per host lists and checks files
/// for the others.
/// @param stored  statistics of `normalise,mean=auto` in a checkpoint; nullopt = they are measured, and all ranks use
///                those of rank 0
/// @throws ConfigError, DataError  on every rank
/// Collective.
data::Splits open_splits(const mpi::Communicator& world, const Section& data, const Registry& registry,
                         const data::OpenOptions& options,
                         const std::optional<data::ChannelStatistics>& stored = std::nullopt);

/// Number and names of the classes of the folder that model.from names, or else init.from. Collective.
/// @return  nothing if neither is a folder with config.json
/// @throws CheckpointError  config.json is malformed; on every rank
std::optional<Task> published_task(const mpi::Communicator& world, const Sections& sections);

}  // namespace lockstep::engine
