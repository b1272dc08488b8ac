// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include "parallel/store/parameter_store.hpp"

namespace lockstep::engine {

/// That all ranks hold the same parameters, bit for bit: what differs must not be saved over what is good. Ranks that
/// share their parameters compare nothing. Collective.
/// @throws CommError  the first parameter that differs, and on which ranks; on every rank
void require_equal_replicas(const mpi::Communicator& world, const parallel::ParameterStore& store);

}  // namespace lockstep::engine
