// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/section.hpp>
#include <lockstep/core/task.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <optional>

namespace lockstep::engine {

/// Number and names of the classes of the folder that model.from names, or else init.from. Collective.
/// @return  nothing if neither is a folder with config.json
/// @throws CheckpointError  config.json is malformed; on every rank
std::optional<Task> published_task(const mpi::Communicator& world, const Sections& sections);

}  // namespace lockstep::engine
