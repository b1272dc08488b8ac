// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <functional>

namespace lockstep::embed {

/// The collective members of a session.
enum class SessionCall { close, train, train_buffer, save, resume, set_parameter, update };

/// Whether all ranks begin the same call, and each can. With several ranks, one all_reduce of four numbers.
/// @param prepare  checks the arguments of this rank and returns the number of its samples; changes nothing
/// @return         the samples of all ranks
/// @throws ConfigError  on every rank: ranks begin different calls; the message names two of them
/// @throws  on every rank, what `prepare` throws on one; it is agreed on
/// Collective.
std::int64_t enter(SessionCall call, const mpi::Communicator& world, mpi::Collectives& collectives,
                   const std::function<std::int64_t()>& prepare);

}  // namespace lockstep::embed
