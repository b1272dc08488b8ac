// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <functional>

namespace lockstep::embed {

/// The collective members of a session.
enum class SessionCall { close, train, train_buffer, save, resume, set_parameter, update };

/// The numbers of a call. Those of all ranks are added, but for the steps, which must be equal.
struct SessionNumbers {
  std::int64_t samples = 0;    ///< in the step
  std::int64_t kept = 0;       ///< in buffers
  std::int64_t producers = 0;  ///< that have not ended
  std::int64_t received = 0;   ///< samples of producers
  std::int64_t dropped = 0;    ///< samples by producers
  std::int64_t steps = 0;
};

/// Agrees that all ranks begin the same call, and that each can. Costs several ranks one all_reduce of ten numbers.
/// @param prepare  checks the arguments of this rank and returns its numbers; changes nothing
/// @return         the numbers of all ranks
/// @throws ConfigError  on every rank: ranks begin different calls; the message names two of them; or other numbers of
///                      steps
/// @throws  on every rank, what `prepare` throws on one; it is agreed on
/// Collective.
SessionNumbers enter(SessionCall call, const mpi::Communicator& world, mpi::Collectives& collectives,
                     const std::function<SessionNumbers()>& prepare);

}  // namespace lockstep::embed
