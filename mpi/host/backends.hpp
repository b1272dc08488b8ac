// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <memory>
#include <vector>

#include "mpi/shared/rendezvous.hpp"

namespace lockstep::mpi {

/// A bucket that this rank alone maps.
BucketMemory allocate_private_bucket(std::size_t bytes);

std::unique_ptr<Collectives> make_self_collectives();

/// Collective; the ranks of `comm` share a host.
std::unique_ptr<Collectives> make_shm_collectives(Communicator comm, const WaitOptions& options);

/// Collective.
std::unique_ptr<Collectives> make_mpi_collectives(Communicator comm, const WaitOptions& options);

/// Collective; ranks with the same host share one.
/// @param host_of_rank  by rank; any numbers
std::unique_ptr<Collectives> make_hierarchical_collectives(Communicator comm, const std::vector<int>& host_of_rank,
                                                           const WaitOptions& options);

}  // namespace lockstep::mpi
