// SPDX-License-Identifier: BSD-3-Clause
// Parameters of Open MPI. Other MPI libraries do not read them.
#pragma once

#include "mpi/process/launch.hpp"

namespace lockstep::mpi {

/// Whether mpirun of Open MPI gave each rank processors of its own.
bool is_bound_by_open_mpi(const Variables& variables);

/// The parameters to set before MPI_Init. Never contains a variable that is set already.
/// Without a fabric, only shared memory and TCP can be used, for which a short list starts faster.
/// @param is_oversubscribed  ranks outnumber processors: waiting ranks yield
Variables open_mpi_parameters(const Variables& variables, const HostFacts& host, bool is_oversubscribed);

}  // namespace lockstep::mpi
