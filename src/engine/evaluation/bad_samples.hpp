// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/source.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <utility>
#include <vector>

namespace lockstep::engine {

/// The samples that each rank has replaced since the last call, with the rank. The same list on every rank.
/// Collective.
std::vector<std::pair<int, data::BadSample>> gather_bad_samples(const mpi::Communicator& world,
                                                                data::SampleErrors& errors);

}  // namespace lockstep::engine
