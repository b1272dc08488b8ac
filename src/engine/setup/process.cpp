// SPDX-License-Identifier: BSD-3-Clause
#include "engine/setup/process.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>

namespace lockstep::engine {

namespace {

void raise_open_files_limit(std::uint64_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = open_files_limit(files.rlim_cur, files.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &files);  // where it is refused the limit stays as it is
}

}  // namespace

KeySpecs RunSettings::keys() {
  return {
      keys::text("run.name", "", "name of the run; empty: the time of its start"),
      keys::text("run.dir", "", "folder of everything the run writes; empty: runs/<run.name>"),
      keys::integer("run.seed", "1", "seed of initial values, sample order and dropout", 0, 9e15),
      keys::choice("run.device", "auto",
                   "where a rank computes: cpu, cuda (one GPU each), or auto: a GPU where every rank can have one",
                   {"auto", "cpu", "cuda"}),
      keys::integer("run.threads", "0",
                    "compute threads of a rank; 0: OMP_NUM_THREADS, else its part of the processors", 0, 1024),
      keys::boolean("run.deterministic", "false",
                    "only kernels that give the same bits in every run; an operation that has none is refused"),
      keys::boolean("run.cudnn_benchmark", "false",
                    "on a GPU: choose convolution kernels by trying them; off with run.deterministic"),
      keys::boolean("run.diff_rank_seed", "true",
                    "ranks draw different dropout; false: every rank draws the same for its n-th sample"),
      keys::boolean("run.compile", "false",
                    "for configurations that carry it: true is refused, models in C++ are not compiled"),
      keys::integer("run.nofile_limit", "4096", "files that a rank may open, as far as the system lets it", 0, 1 << 20),
  };
}

RunSettings RunSettings::from(const Section& run) {
  return {.dir = run.text("dir"),
          .seed = static_cast<std::uint64_t>(run.integer("seed")),
          .device = run.text("device"),
          .threads = static_cast<int>(run.integer("threads")),
          .is_deterministic = run.boolean("deterministic"),
          .has_cudnn_benchmark = run.boolean("cudnn_benchmark"),
          .draws_by_rank = run.boolean("diff_rank_seed"),
          .compile = cited_boolean(run, "compile"),
          .max_open_files = static_cast<std::uint64_t>(run.integer("nofile_limit"))};
}

Processor choose_processor(const RunSettings& run, const mpi::Communicator& world, bool has_lanes, int loader_threads) {
  const mpi::Topology topology = mpi::Topology::of(world);
  // First of all: LibTorch settles once whether there is CUDA.
  mpi::DeviceChoice chosen = mpi::choose_device(run.device, world, topology.local_rank);
  if (!chosen.remark.empty() && world.is_root()) log::warning(chosen.remark);
  log::debug("device: " + (chosen.gpu ? "cuda:" + std::to_string(chosen.gpu->index()) + " (" + chosen.gpu->name() + ")"
                                      : std::string("cpu")));
  const int threads = set_threads(run, topology, has_lanes);
  // Loader threads mostly sleep: only compute threads are held against the processors.
  const std::string crowded = topology.oversubscription(threads);
  if (!crowded.empty() && topology.local_rank == 0) log::warning(crowded);
  log::debug("threads: " + std::to_string(threads) + " for computing, " + std::to_string(loader_threads) +
             " for loading");
  return {.gpu = std::move(chosen.gpu), .threads = threads};
}

std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted) {
  return std::min(std::max(soft, wanted), hard);
}

int set_threads(const RunSettings& run, const mpi::Topology& topology, bool has_lanes) {
  int threads = run.threads;
  if (threads == 0 && has_lanes) threads = 1;
  const char* const omp = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && omp != nullptr) threads = std::atoi(omp);
  if (threads <= 0) threads = std::max(1, topology.cpus / topology.local_size);
  at::set_num_threads(threads);
  return threads;
}

void set_up_process(const RunSettings& run, bool is_root) {
  if (run.compile.value) {
    throw ConfigError(run.compile.cite +
                      ": LibTorch has no compiler for models in C++, and CUDA graphs are not captured; use false");
  }
  raise_open_files_limit(run.max_open_files);
  if (run.is_deterministic && run.has_cudnn_benchmark && is_root) {
    log::warning("run.cudnn_benchmark has no effect with run.deterministic: it would choose kernels by their times");
  }
  at::globalContext().setBenchmarkCuDNN(run.has_cudnn_benchmark && !run.is_deterministic);
  if (!run.is_deterministic) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

}  // namespace lockstep::engine
