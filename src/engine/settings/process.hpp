// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/keys/cited.hpp"
#include "mpi/gpu/gpu.hpp"
#include "mpi/process/topology.hpp"

// The settings of the whole process, from section `run`.
namespace lockstep::engine {

struct RunSettings {
  std::string dir = "";  ///< folder of everything that the run writes
  std::uint64_t seed = 1;
  std::string device = "auto";  ///< auto, cpu or cuda
  int threads = 0;              ///< threads for computing; 0 = see set_threads
  bool is_deterministic = false;
  bool has_cudnn_benchmark = false;
  bool draws_by_rank = true;                   ///< ranks draw different dropout
  bool compile = false;                        ///< steps are captured where that is possible
  Cited<std::string> tf32 = {"convolutions"};  ///< convolutions, all or none: products of float32 that GPUs round
  bool binds_near_gpu = true;                  ///< a rank with a GPU that its launcher has not bound is bound near it
  std::uint64_t max_open_files = 4096;
  std::optional<double> peak_flops = {};  ///< FLOP/s of one device at its peak; 0 = utilization is off; none = measured
  std::map<std::string, std::string> extra = {};  ///< data of the user, stored in every checkpoint

  /// All keys of section `run`; run.name is read by the program.
  static KeySpecs keys();
  static RunSettings from(const Section& run);
  bool operator==(const RunSettings&) const = default;
};

/// The device and the number of threads of this rank.
struct Processor {
  std::shared_ptr<const mpi::Gpu> gpu;  ///< null = the CPU
  int threads = 1;
  int loader_threads = 1;
  int processors = 1;  ///< that this rank can use, if the ranks of a host share its processors equally
};

/// Chooses device and threads, and says in the log what is worth knowing about them. Collective. To be called before
/// anything asks LibTorch about CUDA.
/// @param loader_threads  of this rank; none = as many as the processors suggest
/// @throws ConfigError  the device is not there, on every rank
Processor choose_processor(const RunSettings& run, const mpi::Communicator& world, bool has_lanes,
                           std::optional<int> loader_threads);

/// The soft limit of open files that is requested: at least `wanted`, as far as the hard limit goes; never less than it
/// was.
std::uint64_t open_files_limit(std::uint64_t soft, std::uint64_t hard, std::uint64_t wanted);

/// Sets the compute threads of this rank: run.threads, else OMP_NUM_THREADS, else this rank's part of the processors.
/// With lanes 1, since how many threads add up a sum shows in its bits.
int set_threads(const RunSettings& run, const mpi::Topology& topology, bool has_lanes);

/// Open files (run.nofile_limit), and whether LibTorch may choose kernels that differ from run to run
/// (run.deterministic, run.cudnn_benchmark).
void set_up_process(const RunSettings& run, bool is_root);

}  // namespace lockstep::engine
