// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/resources.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>
#include <utility>

#include "arrays/array_file.hpp"
#include "batch/nvtx_range.hpp"
#include "core/numbers/processor_level.hpp"
#include "core/text/text.hpp"
#include "data/source/settings.hpp"
#include "engine/settings/run_settings.hpp"
#include "engine/settings/train_settings.hpp"
#include "engine/setup/precision.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/gpu_placement.hpp"
#include "mpi/gpu/step_graph.hpp"
#include "mpi/process/topology.hpp"

namespace lockstep::engine {

namespace {

void raise_open_files_limit(std::uint64_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = open_files_limit(files.rlim_cur, files.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &files);  // the limit stays as it is if it is refused
}

/// Collective.
void compare_processors(const mpi::Communicator& world, bool has_lanes) {
  const std::string fact = difference_of_processors(world.all_gather(std::string(name_of(processor_level()))),
                                                    world.all_gather(std::string(name_of(processor_vendor()))));
  if (fact.empty()) return;
  if (has_lanes)
    throw ConfigError("train.lanes requires one processor level and vendor, because results must not differ: " + fact);
  if (world.is_root()) log::warning("results differ in their last bits from those of equal ranks: " + fact);
}

/// Collective over the ranks of a host.
void place_near_gpu(const RunSettings& run, const mpi::Communicator& host, const mpi::Gpu& gpu) {
  const mpi::GpuPlacement placement = mpi::place_near_gpu(host, gpu, run.binds_near_gpu);
  if (!placement.bound.empty()) {
    log::debug("bound to " + std::to_string(placement.bound.size()) + " processors near the GPU, from number " +
               std::to_string(placement.bound.front()));
  }
  if (!host.is_root()) return;
  for (const std::string& warning : placement.warnings) log::warning(warning);
}

/// Sets the compute threads of this rank: run.threads, else OMP_NUM_THREADS, else this rank's part of the processors.
/// With lanes 1, since how many threads add up a sum shows in its bits.
int set_threads(const RunSettings& run, const mpi::Topology& topology, bool has_lanes) {
  int threads = run.threads;
  if (threads == 0 && has_lanes) threads = 1;
  const char* const omp = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && omp != nullptr) threads = std::atoi(omp);
  if (threads <= 0) threads = std::max(1, topology.cpus / topology.local_size);
  at::set_num_threads(threads);
  return threads;
}

/// Chooses device and threads, and says in the log what is worth knowing about them. Collective. To be called before
/// anything asks LibTorch about CUDA.
/// @param loader_threads  of this rank; none = as many as the processors suggest
/// @throws ConfigError  the device is not there, on every rank
void choose_processor(const RunSettings& run, bool has_lanes, std::optional<int> loader_threads, Resources& resources) {
  const mpi::Communicator& world = resources.world;
  const mpi::Topology topology = mpi::Topology::of(world);
  // First of all: LibTorch settles once whether there is CUDA.
  mpi::DeviceChoice chosen = mpi::choose_device(run.device, world, topology.local_rank);
  if (!chosen.remark.empty() && world.is_root()) log::warning(chosen.remark);
  log::debug("device: " + (chosen.gpu ? "cuda:" + std::to_string(chosen.gpu->index()) + " (" + chosen.gpu->name() + ")"
                                      : std::string("cpu")));
  compare_processors(world, has_lanes);
  const int threads = set_threads(run, topology, has_lanes);
  // Loader threads mostly sleep: only compute threads are held against the processors.
  const std::string oversubscribed = topology.oversubscription(threads);
  if (!oversubscribed.empty() && topology.local_rank == 0) log::warning(oversubscribed);
  const int processors = std::clamp(topology.host_cpus / topology.local_size, 1, topology.cpus);
  const int loading = loader_threads.value_or(data::auto_workers(processors));
  if (topology.cpus == 1 && loading > 1 && topology.local_rank == 0) {
    log::warning("data.workers = " + std::to_string(loading) + ", but a rank on " + topology.host_name +
                 " may run on one processor only: bind each rank to more processors (mpirun --bind-to none, or "
                 "--map-by slot:PE=N)");
  }
  if (topology.cpu_quota > 0 && topology.local_rank == 0) {
    log::info("a control group limits a rank on " + topology.host_name + " to " + number_text(topology.cpu_quota) +
              " processors");
  }
  log::debug("threads: " + std::to_string(threads) + " for computing, " + std::to_string(loading) + " for loading");
  // Last, for the numbers of threads are shares of the processors that the ranks of a host have in common.
  if (chosen.gpu) place_near_gpu(run, topology.split_by_host(world), *chosen.gpu);
  resources.gpu = std::move(chosen.gpu);
  resources.threads = threads;
  resources.loader_threads = loading;
  resources.processors = processors;
  arrays::divide_chunk_cache(topology.local_size);
}

/// Open files (run.nofile_limit), and whether LibTorch may choose kernels that differ from run to run
/// (run.deterministic, run.cudnn_benchmark).
void set_up_process(const RunSettings& run, bool is_root) {
  raise_open_files_limit(run.max_open_files);
  if (run.is_deterministic && run.has_cudnn_benchmark && is_root) {
    log::warning("run.cudnn_benchmark has no effect with run.deterministic");
  }
  at::globalContext().setBenchmarkCuDNN(run.has_cudnn_benchmark && !run.is_deterministic);
  if (!run.is_deterministic) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

}  // namespace

std::string difference_of_processors(const std::vector<std::string>& levels, const std::vector<std::string>& vendors) {
  const auto first_other = [](const std::vector<std::string>& names) {
    const auto is_other = [&](const std::string& name) { return name != names[0]; };
    return static_cast<std::size_t>(std::find_if(names.begin(), names.end(), is_other) - names.begin());
  };
  if (const std::size_t rank = first_other(levels); rank < levels.size()) {
    return "rank 0 uses the processor level " + levels[0] + ", but rank " + std::to_string(rank) + " uses " +
           levels[rank] + ". Set LOCKSTEP_CPU to the lower level on all ranks";
  }
  if (const std::size_t rank = first_other(vendors); rank < vendors.size()) {
    return "the processor of rank 0 has the vendor " + vendors[0] + ", but that of rank " + std::to_string(rank) +
           " has the vendor " + vendors[rank] + ". Use hosts with processors of one vendor";
  }
  return "";
}

std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted) {
  return std::min(std::max(soft, wanted), hard);
}

Resources make_resources(const Sections& sections, const mpi::Communicator& world, Purpose purpose,
                         std::shared_ptr<const mpi::Gpu> stand_in) {
  const Section& train = sections.at("train");
  const RunSettings run = RunSettings::from(sections.at("run"));
  const bool has_lanes = BatchSettings::from(train).lanes.value > 0 && purpose != Purpose::prediction;
  Resources resources{
      .world = world,
      .collectives = nullptr,
      .draws = {.seed = run.seed, .rank = run.draws_by_rank ? static_cast<std::uint64_t>(world.rank()) : 0},
      .uses_cuda_graphs = run.uses_cuda_graphs,
      .is_as_on_gpu = stand_in != nullptr};
  choose_processor(run, has_lanes, data::DataSettings::from(sections.at("data")).workers, resources);
  if (resources.gpu) {
    resources.device = c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(resources.gpu->index()));
    batch::enable_nvtx_ranges();
  }
  if (stand_in) resources.gpu = std::move(stand_in);
  world.all_or_throw([&] {
    if (run.uses_cuda_graphs && resources.gpu) mpi::StepGraph::use_stream(*resources.gpu);
    resources.tf32 = products_in_tf32(run.tf32, cited_text(train, "precision"), resources.device);
    set_float32_products(resources.tf32);
    set_up_process(run, world.is_root());
  });
  mpi::CommSettings comm = mpi::CommSettings::from(sections.at("comm"));
  comm.gpu = resources.gpu;
  resources.collectives = mpi::make_collectives(world, comm);
  return resources;
}

}  // namespace lockstep::engine
