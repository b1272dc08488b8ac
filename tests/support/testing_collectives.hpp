// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <memory>

// Backends for tests of what is built upon Collectives.
namespace lockstep::testing {

/// One process that stands for a whole world: every result is as if all ranks had contributed what this one does, to
/// the bit. Nothing waits.
///
/// all_gather repeats the contribution, broadcast leaves it as it is whatever the root, and split gives the same world
/// again. A lane reduction needs a tree in which all ranks have equally many nodes (else std::logic_error).
/// @param rank  that this process plays, in [0, world_size)
/// Not collective.
std::unique_ptr<mpi::Collectives> make_fake_collectives(int world_size, int rank = 0);

/// A link that all operations of a rank share, one after the other.
struct LinkModel {
  double latency_s = 0;      ///< latency of each operation
  double bytes_per_s = 1e9;  ///< rate at which the array of an operation is transferred
};

/// `inner`, with operations that take a modeled time: one begins when it is started and those before it are over, and
/// takes latency_s + bytes / bytes_per_s. `wait`, the first range of a ticket, and members that block return when that
/// time is over, or when `inner` is done if that is later. barrier, allocate_bucket and split have no bytes.
/// Not collective.
std::unique_ptr<mpi::Collectives> make_delay_collectives(std::unique_ptr<mpi::Collectives> inner,
                                                         const LinkModel& link);

}  // namespace lockstep::testing
