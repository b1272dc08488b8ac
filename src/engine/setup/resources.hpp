// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lockstep::mpi {
class Gpu;
}

namespace lockstep::engine {

/// The purpose for which a process is set up.
enum class Purpose { training, evaluation, prediction };

/// The means by which each rank of a job computes and communicates, whatever model it runs. One process per rank.
struct Resources {
  const mpi::Communicator& world;                 ///< all ranks
  std::unique_ptr<mpi::Collectives> collectives;  ///< of all ranks
  std::shared_ptr<const mpi::Gpu> gpu = nullptr;  ///< GPU of this rank; null = none
  c10::Device device = c10::Device(c10::kCPU);    ///< device of this rank
  int threads = 1;                                ///< computing threads on this rank
  int loader_threads = 1;                         ///< loader threads on this rank
  int processors = 1;                             ///< processors that this rank can use
  DrawSeeds draws = {};                           ///< seeds of random numbers
  std::string tf32 = "none";                      ///< float32 products in TF32: convolutions, all or none
  bool uses_cuda_graphs = false;                  ///< run.cuda_graphs
  bool is_as_on_gpu = false;                      ///< for tests: what is done on GPUs is done on the CPU
};

/// The first difference between the processors of ranks; "" = there is none. Different levels round sums in different
/// ways; so do the kernels and libraries that are chosen for different vendors.
/// @param levels, vendors  names of the level and of the vendor of each rank
std::string difference_of_processors(const std::vector<std::string>& levels, const std::vector<std::string>& vendors);

/// Sets the process up: threads, open files, determinism, device, collectives.
///
/// @param sections  run, comm, train and data are read
/// @param world     all ranks; outlives the resources
/// @param stand_in  for tests: a GPU that computes on the CPU, in the memory of the host; null = run.device decides
/// @throws ConfigError  a setting that cannot work here, on every rank
/// Collective. To be called before anything asks LibTorch about CUDA.
Resources make_resources(const Sections& sections, const mpi::Communicator& world, Purpose purpose = Purpose::training,
                         std::shared_ptr<const mpi::Gpu> stand_in = nullptr);

/// The soft limit of open files that is requested: at least `wanted`, as far as the hard limit goes; never less than it
/// was.
std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted);

}  // namespace lockstep::engine
