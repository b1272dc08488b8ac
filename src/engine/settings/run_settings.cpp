// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/run_settings.hpp"

#include <lockstep/core/error.hpp>

#include "core/text/parse_value.hpp"

namespace lockstep::engine {

namespace {

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

}  // namespace

KeySpecs RunSettings::keys() {
  return keys::titled(
      "Name, output folder, seed, device and threads of the run",
      {
          keys::text("run.name", "",
                     "Name of the run. If empty, the start time is used. It may contain the {job}, {array} and {time} "
                     "of run.dir"),
          keys::text("run.dir", "",
                     "Output folder of the run. If empty, runs/<run.name> is used. In it, {name} becomes run.name, "
                     "{job} the id of the Slurm job or job array, {array} the number of the task in the array, {time} "
                     "the start time, such as 20260131-235900"),
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
          keys::expert(keys::not_read_by(
              keys::boolean("run.cudnn_benchmark", "false",
                            "On GPUs, select convolution kernels by benchmarking them, without run.deterministic"),
              "run.deterministic", {"true", "yes", "on", "1"})),
          keys::expert(keys::boolean(
              "run.diff_rank_seed", "true",
              "Use different dropout masks on each rank. If false, the n-th sample of every rank has the same mask")),
          keys::renamed(
              keys::boolean(
                  "run.cuda_graphs", "false",
                  "On GPUs, capture forward, backward, reduction and update of a step as CUDA graphs and launch them "
                  "for each following step. Steps that cannot be captured run as without this key, and the log states "
                  "the reason"),
              "run.compile"),
          keys::expert(keys::choice(
              "run.tf32", "convolutions",
              "Products of float32 numbers that GPUs compute in TF32, with a mantissa of 10 bits. convolutions = "
              "those of cuDNN, as in PyTorch; all = also products of matrices; none = float32 throughout. Has no "
              "effect on the CPU and with train.precision=fp64; train.precision=tf32 implies all",
              {"convolutions", "all", "none"})),
          keys::expert(keys::boolean(
              "run.bind_near_gpu", "true",
              "Bind a rank with a GPU to the processors near this GPU, unless mpirun or srun has bound it")),
          keys::expert(keys::integer("run.nofile_limit", "4096",
                                     "Limit of open files per rank (RLIMIT_NOFILE), up to the hard limit of the system",
                                     0, 1 << 20)),
          keys::expert(keys::text(
              "run.peak_flops", "auto",
              "Floating-point operations per second of one device, for the model FLOPs utilization (mfu) in the log. "
              "auto = measured with a matrix product; 0 = no mfu")),
          keys::choice("run.heal", "none",
                       "What the other ranks do when ranks have died. none = the run ends; shrink = they continue in "
                       "place from the latest copy in memory or checkpoint, which needs mpirun --enable-recovery "
                       "(tools/train --heal). CPUs only",
                       {"none", "shrink"}),
          keys::expert(keys::read_by(
              keys::integer("run.max_heals", "5", "Maximum number of consecutive recoveries without a new checkpoint",
                            0, 1000000),
              "run.heal", {"shrink"})),
          keys::boolean("run.dry_run", "false",
                        "Print the plan of the run on these ranks instead of training, as `trainer plan` does"),
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
          .uses_cuda_graphs = run.boolean("cuda_graphs"),
          .tf32 = cited_text(run, "tf32"),
          .binds_near_gpu = run.boolean("bind_near_gpu"),
          .max_open_files = static_cast<std::uint64_t>(run.integer("nofile_limit")),
          .peak_flops = peak_flops_in(run),
          .extra = extra_in(run)};
}

}  // namespace lockstep::engine
