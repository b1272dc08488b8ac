// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <memory>

#include "mpi/gpu/nccl_link.hpp"

namespace lockstep::mpi {

/// Collective.
/// @param host  for host memory, of the same ranks
/// @throws ConfigError  two ranks have one GPU, or NCCL versions differ; on every rank
std::unique_ptr<Collectives> make_nccl_collectives(Communicator comm, std::shared_ptr<const Gpu> gpu,
                                                   std::unique_ptr<Collectives> host, const NcclOptions& options);

}  // namespace lockstep::mpi
