// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "mpi/gpu/gpu.hpp"

namespace lockstep::mpi {

/// The version of NCCL that this process has loaded, such as "2.28.9". Not collective.
std::string nccl_version(const Gpu& gpu);

}  // namespace lockstep::mpi
