// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/data/source.hpp>
#include <lockstep/data/transform.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <initializer_list>
#include <optional>
#include <string>

#include "engine/state/resume_settings.hpp"

// The data of a run, and what a checkpoint contains about them, which is needed before they are opened.
namespace lockstep::engine {

/// The facts of a run for its data.
data::OpenOptions open_options(const Sections& sections, const Registry& registry);

/// The splits with these names.
data::UsedSplits used_splits(std::initializer_list<std::string> names);

/// Opens the data of a run on all ranks and logs the remarks of the source. One rank per host lists and checks files
/// for the others.
/// @param stored  statistics of `normalize,mean=auto` in a checkpoint; nullopt = they are measured, and all ranks use
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

inline const std::string kTransform = "/data/transform";
inline const std::string kStatisticsMean = "/data/statistics/mean";
inline const std::string kStatisticsStd = "/data/statistics/std";

/// The statistics of `normalize,mean=auto` in a checkpoint; nullopt = the run did not use any, or the checkpoint is of
/// an earlier version.
/// @throws CheckpointError  they are malformed
std::optional<data::ChannelStatistics> stored_statistics(const checkpoints::Archive& archive);

/// The statistics of `normalize,mean=auto` with which a run continues: those of the checkpoint that it resumes from.
/// Reads no other arrays. nullopt = a fresh start, or a checkpoint without statistics.
/// @param directory  the run's checkpoint folder
/// @throws ConfigError, CheckpointError  as load_or_resume, on every rank; a checkpoint that cannot be read is skipped
/// Collective: rank 0 reads.
std::optional<data::ChannelStatistics> resumed_statistics(const mpi::Communicator& world,
                                                          const ResumeSettings& settings, const std::string& directory);

/// The statistics of rank 0, on every rank. Collective.
std::optional<data::ChannelStatistics> broadcast(const mpi::Communicator& world,
                                                 const std::optional<data::ChannelStatistics>& statistics);

}  // namespace lockstep::engine
