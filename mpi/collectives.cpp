// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/topology.hpp>

#include <algorithm>
#include <string>

#include "backends.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kBlockBytes = 64;

std::string automatic_backend(const Topology& topology, int world_size) {
  if (world_size == 1) return "self";
  if (topology.host_count == 1) return "shm";
  return topology.host_count == world_size ? "mpi" : "hierarchical";
}

}  // namespace

Slice slice_of(std::size_t count, int part, int parts, std::size_t element_bytes) {
  const std::size_t block = std::max<std::size_t>(kBlockBytes / element_bytes, 1);
  const std::size_t blocks = (count + block - 1) / block;
  const std::size_t share = blocks / parts;
  const std::size_t larger_parts = blocks % parts;
  const auto border = [&](std::size_t index) {
    return std::min(count, (index * share + std::min(index, larger_parts)) * block);
  };
  const auto index = static_cast<std::size_t>(part);
  return {.begin = border(index), .count = border(index + 1) - border(index)};
}

namespace {

std::unique_ptr<Collectives> make_for_host(const Communicator& world, const std::string& chosen,
                                           const Topology& topology, const WaitOptions& wait) {
  const std::string backend = chosen == "auto" ? automatic_backend(topology, world.size()) : chosen;
  if (backend == "self") {
    if (world.size() == 1) return make_self_collectives();
    throw_agreed(ExitCode::configuration,
                 "comm.backend: self serves one rank, not " + std::to_string(world.size()) + "; use auto");
  }
  if (backend == "shm") {
    if (topology.host_count == 1) return make_shm_collectives(Communicator(world.handle()), wait);
    throw_agreed(ExitCode::configuration, "comm.backend: shm serves the ranks of one host, not of " +
                                              std::to_string(topology.host_count) + "; use auto, hierarchical or mpi");
  }
  if (backend == "mpi") return make_mpi_collectives(Communicator(world.handle()), wait);
  if (backend == "hierarchical") {
    return make_hierarchical_collectives(Communicator(world.handle()), topology.host_of_rank, wait);
  }
  throw_agreed(ExitCode::configuration, "comm.backend: nccl needs GPUs; use auto, or run.device=cuda");
}

}  // namespace

std::unique_ptr<Collectives> make_collectives(const Communicator& world, const CollectivesOptions& options) {
  const Topology topology = Topology::of(world, options.hosts);
  const int ranks_here = world.split_by_host().size();
  const WaitOptions wait{.timeout_s = options.timeout_s, .is_crowded = ranks_here > topology.host_cpus};
  const bool is_for_gpus = options.gpu && (options.backend == "nccl" || world.size() > 1);
  if (!is_for_gpus) return make_for_host(world, options.backend, topology, wait);
  if (options.backend != "auto" && options.backend != "nccl") {
    throw_agreed(ExitCode::configuration,
                 "comm.backend: " + options.backend + " does not reach the memory of GPUs; use auto or nccl");
  }
  return make_nccl_collectives(Communicator(world.handle()), options.gpu, make_for_host(world, "auto", topology, wait),
                               {.wait = wait});
}

KeySpecs comm_keys() {
  return {
      {.name = "comm.backend",
       .type = KeyType::choice,
       .default_value = "auto",
       .help = "how gradients travel: self (one rank), shm (one host), mpi (any hosts), hierarchical (shared memory "
               "inside a host, MPI between hosts), nccl (GPUs); auto takes the fastest",
       .choices = {"auto", "self", "shm", "mpi", "hierarchical", "nccl"}},
      {.name = "comm.timeout_s",
       .type = KeyType::real,
       .default_value = "300",
       .help = "seconds that a rank waits for a peer before the job fails",
       .min = 0,
       .min_is_exclusive = true},
      {.name = "comm.hosts",
       .type = KeyType::integer,
       .default_value = "0",
       .help = "tries several hosts on one: the ranks are taken as if they ran on so many; 0 takes them as they are",
       .min = 0},
  };
}

}  // namespace lockstep::mpi
