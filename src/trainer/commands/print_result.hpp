// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/log/log.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <string>

namespace lockstep::trainer {

/// Prints the result of a command on rank 0. Collective.
/// @throws DataError  standard output is full or closed; on every rank
inline void print_result(const mpi::Communicator& world, const std::string& text) {
  world.all_or_throw([&text] { log::result(text); });
}

}  // namespace lockstep::trainer
