// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/process.hpp"

#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/log/log.hpp>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdlib>
#include <sys/resource.h>

#include "core/numbers/processor_level.hpp"
#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"
#include "data/source/settings.hpp"
#include "mpi/gpu/gpu_placement.hpp"

namespace lockstep::engine {

namespace {

void raise_open_files_limit(std::uint64_t wanted) {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = open_files_limit(files.rlim_cur, files.rlim_max, wanted);
  setrlimit(RLIMIT_NOFILE, &files);  // the limit stays as it is if it is refused
}

std::optional<double> peak_flops_in(const Section& run) {
  if (run.text("peak_flops") == "auto") return std::nullopt;
  const auto flops = parse_real(run.text("peak_flops"));
  if (flops && *flops >= 0) return flops;
  throw ConfigError(run.cite("peak_flops") + ": '" + run.text("peak_flops") +
                    "' is neither auto nor a number of at least 0, such as 67e12");
}

/// The values of run.extra by name.
std::map<std::string, std::string> extra_in(const Section& run) {
  std::map<std::string, std::string> extra;
  for (const std::string& text : run.texts("extra")) {
    const std::size_t equals = text.find('=');
    if (equals == 0 || equals == std::string::npos || text.find_first_of("/@") < equals) {
      throw ConfigError(run.cite("extra") + ": '" + text + "' is not NAME=VALUE, with a NAME without '/' and '@'");
    }
    if (!extra.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      throw ConfigError(run.cite("extra") + ": the name '" + text.substr(0, equals) + "' is given twice");
    }
  }
  return extra;
}

/// Ranks with different processor levels round sums in different ways. Collective.
void compare_processor_levels(const mpi::Communicator& world, bool has_lanes) {
  const std::vector<std::string> levels = world.all_gather(std::string(name_of(processor_level())));
  const auto other = std::find_if(levels.begin(), levels.end(), [&](const auto& level) { return level != levels[0]; });
  if (other == levels.end()) return;
  const std::string fact = "rank 0 uses the processor level " + levels[0] + ", but rank " +
                           std::to_string(other - levels.begin()) + " uses " + *other +
                           ". Set LOCKSTEP_CPU to the lower level on all ranks";
  if (has_lanes)
    throw ConfigError("train.lanes requires one processor level, because results must not differ: " + fact);
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

}  // namespace

KeySpecs RunSettings::keys() {
  return keys::titled(
      "Name, output folder, seed, device and threads of the run",
      {
          keys::text("run.name", "", "Name of the run. If empty, the start time is used"),
          keys::text("run.dir", "", "Output folder of the run. If empty, runs/<run.name> is used"),
          keys::integer("run.seed", "1", "Seed of the initial parameters, the sample order and dropout", 0, 9e15),
          keys::choice(
              "run.device", "auto",
              "Device of each rank. cuda = one GPU per rank; auto = GPUs if every rank can have one, otherwise the CPU",
              {"auto", "cpu", "cuda"}),
          keys::integer("run.threads", "0",
                        "Compute threads per rank. 0 = the value of OMP_NUM_THREADS, or an equal share of the "
                        "processors of the host",
                        0, 1024),
          keys::boolean("run.deterministic", "false",
                        "Use only deterministic kernels. An operation without a deterministic kernel is an error"),
          keys::boolean(
              "run.cudnn_benchmark", "false",
              "On GPUs, select convolution kernels by benchmarking them; has no effect with run.deterministic"),
          keys::boolean(
              "run.diff_rank_seed", "true",
              "Use different dropout masks on each rank. If false, the n-th sample of every rank has the same mask"),
          keys::boolean(
              "run.compile", "false",
              "On GPUs, capture forward, backward, reduction and update of a step as CUDA graphs and launch them for "
              "each following step. Steps that cannot be captured run as without this key, and the log states the "
              "reason"),
          keys::choice(
              "run.tf32", "convolutions",
              "Products of float32 numbers that GPUs compute in TF32, with 10 bits after the point. convolutions = "
              "those of cuDNN, as in PyTorch; all = also products of matrices; none = float32 throughout. Has no "
              "effect on the CPU and with train.precision=fp64; train.precision=tf32 implies all",
              {"convolutions", "all", "none"}),
          keys::boolean("run.bind_near_gpu", "true",
                        "Bind a rank with a GPU to the processors near this GPU, unless mpirun or srun has bound it"),
          keys::integer("run.nofile_limit", "4096",
                        "Limit of open files per rank (RLIMIT_NOFILE), up to the hard limit of the system", 0, 1 << 20),
          keys::text(
              "run.peak_flops", "auto",
              "Floating-point operations per second of one device, for the model FLOPs utilization (mfu) in the log. "
              "auto = measured with a matrix product; 0 = no mfu"),
          keys::texts(
              "run.extra", "",
              "NAME=VALUE: data of the user, stored in every checkpoint and printed by ckpt info. Has no effect on "
              "training"),
      });
}

RunSettings RunSettings::from(const Section& run) {
  return {.dir = run.text("dir"),
          .seed = static_cast<std::uint64_t>(run.integer("seed")),
          .device = run.text("device"),
          .threads = static_cast<int>(run.integer("threads")),
          .is_deterministic = run.boolean("deterministic"),
          .has_cudnn_benchmark = run.boolean("cudnn_benchmark"),
          .draws_by_rank = run.boolean("diff_rank_seed"),
          .compile = run.boolean("compile"),
          .tf32 = cited_text(run, "tf32"),
          .binds_near_gpu = run.boolean("bind_near_gpu"),
          .max_open_files = static_cast<std::uint64_t>(run.integer("nofile_limit")),
          .peak_flops = peak_flops_in(run),
          .extra = extra_in(run)};
}

Processor choose_processor(const RunSettings& run, const mpi::Communicator& world, bool has_lanes,
                           std::optional<int> loader_threads) {
  const mpi::Topology topology = mpi::Topology::of(world);
  // First of all: LibTorch settles once whether there is CUDA.
  mpi::DeviceChoice chosen = mpi::choose_device(run.device, world, topology.local_rank);
  if (!chosen.remark.empty() && world.is_root()) log::warning(chosen.remark);
  log::debug("device: " + (chosen.gpu ? "cuda:" + std::to_string(chosen.gpu->index()) + " (" + chosen.gpu->name() + ")"
                                      : std::string("cpu")));
  compare_processor_levels(world, has_lanes);
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
  return {.gpu = std::move(chosen.gpu), .threads = threads, .loader_threads = loading, .processors = processors};
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

}  // namespace lockstep::engine
