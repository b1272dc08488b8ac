// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/data/transform.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <optional>
#include <string>

#include "engine/state/resume_settings.hpp"

// The facts that a checkpoint contains about the data, which is needed before the data are opened.
namespace lockstep::engine {

inline const std::string kTransform = "/data/transform";
inline const std::string kStatisticsMean = "/data/statistics/mean";
inline const std::string kStatisticsStd = "/data/statistics/std";

/// The statistics of `normalise,mean=auto` in a checkpoint; nullopt = the run did not use any, or the checkpoint is of
/// an earlier version.
/// @throws CheckpointError  they are malformed
std::optional<data::ChannelStatistics> stored_statistics(const checkpoints::Archive& archive);

/// The statistics of `normalise,mean=auto` with which a run continues: those of the checkpoint that it resumes from.
/// Reads no other arrays. nullopt = a fresh start, or a checkpoint without statistics.
/// @param directory  the run's checkpoint folder
/// @throws ConfigError, CheckpointError  as load_or_resume, on every rank; a checkpoint that cannot be read is skipped
/// Collective: rank 0 reads.
std::optional<data::ChannelStatistics> resumed_statistics(const mpi::Communicator& world,
                                                          const ResumeSettings& settings, const std::string& directory);

/// The statistics of rank 0, on every rank.
/// Collective.
std::optional<data::ChannelStatistics> broadcast(const mpi::Communicator& world,
                                                 const std::optional<data::ChannelStatistics>& statistics);

}  // namespace lockstep::engine
