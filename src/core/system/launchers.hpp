// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>

namespace lockstep {

/// The variable in which the launcher of each MPI library states the number of ranks on this host. Other launchers
/// (srun) do not set them.
inline constexpr std::array kLocalSizeVariables = {
    "OMPI_COMM_WORLD_LOCAL_SIZE",  // Open MPI
    "MPI_LOCALNRANKS",             // MPICH, Intel MPI
};

}  // namespace lockstep
