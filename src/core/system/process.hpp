// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <string>

namespace lockstep {

/// The name of this host; "unknown" if the system does not give it.
std::string host_name();

/// Makes a failed write to a pipe or to a closed standard stream an error of this write. SIGPIPE is ignored, and closed
/// standard streams are opened so that no other file gets their number: what is written to standard output then fails.
/// Call it before any file is opened.
void guard_standard_streams() noexcept;

/// The version of Lockstep, such as "0.1.0", as CMakeLists.txt states it.
const std::string& version();

/// The variable in which the launcher of each MPI library states the number of ranks on this host. Other launchers
/// (srun) do not set them.
inline constexpr std::array kLocalSizeVariables = {
    "OMPI_COMM_WORLD_LOCAL_SIZE",  // Open MPI
    "MPI_LOCALNRANKS",             // MPICH, Intel MPI
};

}  // namespace lockstep
