// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <map>
#include <string>
#include <vector>

#include "mpi/process/topology.hpp"

namespace lockstep::mpi {

class Gpu;

/// The threads of a rank with a GPU that wait for nobody: steps, backward, and NCCL.
inline constexpr int kMinCoresPerGpu = 3;

/// The facts on which the choice of processors near a GPU depends.
struct GpuNeighborhood {
  Cpus allowed = {};                ///< those of the affinity mask
  Cpus near = {};                   ///< those near the GPU; empty = not known
  std::map<int, int> core_of = {};  ///< the core of each processor that is allowed
  int position = 0;                 ///< index of this rank among those of its host with the same `near`, which
  int ranks = 1;                    ///<   share them
};

/// The processors near the GPU that this rank takes: an equal share, in whole cores, or all of them where a share would
/// be less than kMinCoresPerGpu.
/// @return  empty = the rank stays where it is: nothing is known, or nothing would change
Cpus processors_near_gpu(const GpuNeighborhood& neighborhood);

/// The processors that the system names for a PCI device; empty where it names none.
/// @param bus_id  such as 0000:3B:00.0
/// @param root    folder that contains sys, for tests
Cpus processors_near_device(const std::string& bus_id, const std::string& root = "/");

/// Whether this process may open the GPU: control groups and containers can take the GPUs of other ranks away from it.
/// @param root  folder that contains dev and proc, for tests
bool can_open_gpu(const std::string& bus_id, const std::string& root = "/");

/// The lines to be logged about the place of a rank.
struct GpuPlacement {
  Cpus bound = {};  ///< the processors that this rank was bound to; empty = it stays where it was
  std::vector<std::string> warnings = {};  ///< the same on all ranks of this host, which are slowed down
};

/// Binds this rank to the processors near its GPU, unless its launcher has bound it, and looks for a place that slows
/// it down: a binding to few cores, and GPUs of peers that NCCL cannot reach. NCCL connects GPUs directly only if each
/// process may open all of them; those that CUDA_VISIBLE_DEVICES hides are not in its way.
/// @param host   the ranks of this host, all of which have a GPU
/// @param binds  false = no rank is bound here
/// Collective over `host`.
GpuPlacement place_near_gpu(const Communicator& host, const Gpu& gpu, bool binds);

}  // namespace lockstep::mpi
