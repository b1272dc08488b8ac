// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>

#include "mpi/gpu/nccl_link.hpp"
#include "mpi/host/host_collectives.hpp"
#include "mpi/process/topology.hpp"
#include "mpi/shared/job.hpp"

namespace lockstep::mpi {

namespace {

constexpr std::size_t kBlockBytes = 64;

std::string automatic_backend(const Topology& topology, int world_size) {
  if (world_size == 1) return "self";
  if (topology.host_count == 1) return "shm";
  return topology.host_count == world_size ? "mpi" : "hierarchical";
}

std::unique_ptr<Collectives> make_for_host(const Communicator& world, const std::string& chosen,
                                           const Topology& topology, const WaitOptions& wait) {
  const std::string backend = chosen == "auto" ? automatic_backend(topology, world.size()) : chosen;
  if (backend == "self") {
    if (world.size() == 1) return make_self_collectives();
    throw_agreed(ExitCode::configuration, "comm.backend: self supports one rank only, but there are " +
                                              std::to_string(world.size()) + "; use auto");
  }
  if (backend == "shm") {
    if (topology.host_count == 1) return make_shm_collectives(Communicator(world.handle()), wait);
    throw_agreed(ExitCode::configuration, "comm.backend: shm supports one host only, but the ranks run on " +
                                              std::to_string(topology.host_count) + "; use auto, hierarchical or mpi");
  }
  if (backend == "mpi") return make_mpi_collectives(Communicator(world.handle()), wait);
  if (backend == "hierarchical") {
    return make_hierarchical_collectives(Communicator(world.handle()), topology.host_of_rank, wait);
  }
  throw_agreed(ExitCode::configuration, "comm.backend: nccl needs GPUs; use auto, or run.device=cuda");
}

}  // namespace

Ticket Collectives::start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::all_reduce, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values)});
}

Ticket Collectives::start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::reduce_ranges, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values)});
}

Ticket Collectives::start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * static_cast<std::size_t>(world_size())) {
    throw std::logic_error("comm: all_gather of " + std::to_string(mine.size()) + " bytes from " +
                           std::to_string(world_size()) + " ranks into " + std::to_string(all.size()));
  }
  return start({.call = {.count = mine.size(), .kind = CallKind::all_gather},
                .values = const_cast<std::byte*>(mine.data()),  // only read
                .result = all.data()});
}

Ticket Collectives::start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::reduce_scatter, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values),
                .result = static_cast<std::byte*>(slice)});
}

void Collectives::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= world_size()) {
    throw std::logic_error("comm: broadcast from rank " + std::to_string(root) + " of " + std::to_string(world_size()));
  }
  wait(start({.call = {.count = bytes.size(), .root = root, .kind = CallKind::broadcast}, .values = bytes.data()}));
}

void Collectives::barrier() { wait(start({.call = {.kind = CallKind::barrier}})); }

std::vector<std::vector<std::byte>> Collectives::all_gather_any(std::span<const std::byte> mine) {
  const std::uint64_t size = mine.size();
  std::vector<std::uint64_t> sizes(static_cast<std::size_t>(world_size()));
  all_gather(std::as_bytes(std::span(&size, 1)), std::as_writable_bytes(std::span(sizes)));
  const std::size_t largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<std::byte> padded(mine.begin(), mine.end());
  padded.resize(largest);
  std::vector<std::byte> all(sizes.size() * largest);
  all_gather(padded, all);
  std::vector<std::vector<std::byte>> contributions;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(rank * largest);
    contributions.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(sizes[rank]));
  }
  return contributions;
}

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

std::unique_ptr<Collectives> make_collectives(const Communicator& world, const CommSettings& options) {
  const Topology topology = Topology::of(world, options.hosts);
  const int ranks_here = world.split_by_host().size();
  const WaitOptions wait{.timeout_s = options.timeout_s, .is_oversubscribed = ranks_here > topology.host_cpus};
  const bool is_for_gpus = options.gpu && (options.backend == "nccl" || world.size() > 1);
  if (!is_for_gpus) return make_for_host(world, options.backend, topology, wait);
  if (options.backend != "auto" && options.backend != "nccl") {
    throw_agreed(ExitCode::configuration,
                 "comm.backend: " + options.backend + " does not support GPUs; use auto or nccl");
  }
  return make_nccl_collectives(Communicator(world.handle()), options.gpu, make_for_host(world, "auto", topology, wait),
                               {.wait = wait});
}

KeySpecs CommSettings::keys() {
  return keys::titled(
      "Communication backend and time limits",
      {keys::choice(
           "comm.backend", "auto",
           "Communication backend: self (one rank), shm (shared memory, one host), mpi (any hosts), hierarchical "
           "(shared memory inside a host, MPI between hosts), nccl (GPUs). auto = the fastest available",
           {"auto", "self", "shm", "mpi", "hierarchical", "nccl"}),
       keys::real_above("comm.timeout_s", 0, keys::kUnlimited, "300",
                        "Maximum time in seconds that a rank waits for its peers before the job fails"),
       keys::expert(keys::integer(
           "comm.hosts", "0",
           "For testing: treat the ranks of one host as if they ran on this number of hosts. 0 = the actual hosts",
           0))});
}

CommSettings CommSettings::from(const Section& comm) {
  return {.backend = comm.text("backend"),
          .timeout_s = comm.real("timeout_s"),
          .hosts = static_cast<int>(comm.integer("hosts"))};
}

}  // namespace lockstep::mpi
