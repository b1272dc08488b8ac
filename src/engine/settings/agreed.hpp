// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "core/system/memory.hpp"
#include "core/text/text.hpp"

namespace lockstep::engine {

/// The value that each rank makes for itself. Collective: if `make` throws on one rank, all ranks throw, see
/// Communicator::all_or_throw.
template <class Make>
auto agreed(const mpi::Communicator& world, const Make& make) {
  std::optional<std::invoke_result_t<const Make&>> made;
  world.all_or_throw([&] { made.emplace(make()); });
  return std::move(*made);
}

/// The text that rank 0 makes, on every rank. Collective: if `make` throws, all ranks throw.
template <class Make>
std::string text_of_root(const mpi::Communicator& world, const Make& make) {
  return world.broadcast(agreed(world, [&] { return world.is_root() ? std::string(make()) : std::string(); }));
}

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
