// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

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

}  // namespace lockstep::engine
