// SPDX-License-Identifier: BSD-3-Clause
#include "process_setup.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>

namespace lockstep::engine {

std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted) {
  return std::min(std::max(soft, wanted), hard);
}

int set_threads(const Section& run, const mpi::Topology& topology, bool has_lanes) {
  int threads = static_cast<int>(run.integer("threads"));
  if (threads == 0 && has_lanes) threads = 1;
  const char* const omp = std::getenv("OMP_NUM_THREADS");
  if (threads == 0 && omp != nullptr) threads = std::atoi(omp);
  if (threads <= 0) threads = std::max(1, topology.cpus / topology.local_size);
  at::set_num_threads(threads);
  return threads;
}

void set_up_process(const Section& run, bool is_root) {
  if (run.boolean("compile")) {
    throw ConfigError(run.cite("compile") +
                      ": LibTorch has no compiler for models in C++, and CUDA graphs are not captured; use false");
  }
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur =
        open_files_limit(files.rlim_cur, files.rlim_max, static_cast<std::uint64_t>(run.integer("nofile_limit")));
    setrlimit(RLIMIT_NOFILE, &files);  // where it is refused the limit stays as it is
  }
  const bool is_deterministic = run.boolean("deterministic");
  const bool has_benchmark = run.boolean("cudnn_benchmark");
  if (is_deterministic && has_benchmark && is_root) {
    log::warning("run.cudnn_benchmark has no effect with run.deterministic: it would choose kernels by their times");
  }
  at::globalContext().setBenchmarkCuDNN(has_benchmark && !is_deterministic);
  if (!is_deterministic) return;
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  at::globalContext().setDeterministicCuDNN(true);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
}

}  // namespace lockstep::engine
