// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/registry.hpp>
#include <lockstep/mpi/communicator.hpp>

namespace lockstep::engine {

/// The facts of a run for its data.
data::OpenOptions open_options(const Sections& sections, const Registry& registry);

/// Opens the data of a run on all ranks and logs the remarks of the source. One rank per host lists and checks files
/// for the others.
/// @throws ConfigError, DataError  on every rank
/// Collective.
data::Splits open_splits(const mpi::Communicator& world, const Section& data, const Registry& registry,
                         const data::OpenOptions& options);

}  // namespace lockstep::engine
