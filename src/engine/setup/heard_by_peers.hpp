// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <exception>

#include "core/system/out_of_memory.hpp"
#include "core/text/message.hpp"

namespace lockstep::engine {

/// Whether the other ranks know of this failure without being notified.
inline bool is_known_to_peers(const Error& error) {
  return error.is_agreed() || error.is_remote() || error.exit_code() == ExitCode::communication;
}

/// Runs what all ranks do together. If it fails on this rank alone, the other ranks are notified, so that they do not
/// wait for this rank.
template <class Work>
auto heard_by_peers(mpi::Collectives& collectives, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (!is_known_to_peers(error)) collectives.give_up(error.exit_code(), error.what());
    throw;
  } catch (const std::exception& failure) {
    if (is_out_of_memory(failure)) {
      collectives.give_up(kOutOfMemory, out_of_memory_error(failure).what());
    } else {
      collectives.give_up(ExitCode::internal, message_of(failure));
    }
    throw;
  }
}

}  // namespace lockstep::engine
