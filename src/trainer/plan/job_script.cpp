// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/job_script.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::trainer {

namespace {

constexpr double kMinSignalSeconds = 180;

/// The commands of tools/slurm/train.sbatch until the arguments of trainer. A test compares both files.
constexpr const char* kStart = R"(set -uo pipefail

trainer=${LOCKSTEP_TRAINER:-build/trainer}
run_dir=runs/$SLURM_JOB_NAME-${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}}
export SRUN_CPUS_PER_TASK=${SRUN_CPUS_PER_TASK:-${SLURM_CPUS_PER_TASK:-1}} # srun does not take it from sbatch
# NCCL connects GPUs directly only if each rank can open all GPUs of its host.
[[ -z ${SLURM_JOB_GPUS:-}${SLURM_GPUS_ON_NODE:-} ]] || export SLURM_GPU_BIND=${SLURM_GPU_BIND:-none}

heal=() copies=()
if [[ -n ${LOCKSTEP_HEAL:-} ]]; then heal=("$trainer" heal) copies=(--ckpt.memory_every=auto); fi

# USR2 can also reach this shell (scancel --full); the ranks have received it already. TERM ends the shell.
signals=0
trap '((++signals))' USR2

${heal[@]+"${heal[@]}"} srun --mpi=pmix "$trainer" train --run.dir="$run_dir" ${copies[@]+"${copies[@]}"})";
/// The commands after these arguments.
constexpr const char* kEnd = R"("$@" &
srun_pid=$!

# A trapped signal ends `wait` early, with a code of its own.
while :; do
  seen=$signals
  wait "$srun_pid"
  code=$?
  ((signals > seen)) || break
done

if ((code == 75)) && scontrol requeue "$SLURM_JOB_ID"; then
  sleep 60 # Slurm ends this script; if the script ended before, the job would not be requeued
fi
exit "$code"
)";

/// Slurm's form of a time limit, rounded up to minutes.
std::string limit_text(double seconds) {
  const auto minutes = static_cast<long>(std::ceil(std::max(60.0, seconds) / 60));
  const long days = minutes / 1440;
  const std::string clock = fmt::format("{:02}:{:02}:00", minutes / 60 % 24, minutes % 60);
  return days > 0 ? fmt::format("{}-{}", days, clock) : clock;
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto is_plain = [](char sign) {
    return (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z') || (sign >= '0' && sign <= '9') ||
           std::string("-_=./,:+@%").find(sign) != std::string::npos;
  };
  if (!text.empty() && std::ranges::all_of(text, is_plain)) return text;
  std::string word = "'";
  for (const char sign : text) word += sign == '\'' ? std::string("'\\''") : std::string(1, sign);
  return word + "'";
}

std::string slurm_script(const JobScript& job) {
  std::string options = fmt::format("--job-name=lockstep\n--ntasks={}\n--nodes={}\n", job.ranks, job.hosts);
  options +=
      fmt::format("--ntasks-per-node={}\n--cpus-per-task={}\n", (job.ranks + job.hosts - 1) / job.hosts, job.cpus);
  options += fmt::format("--time={}\n", limit_text(job.time_s));
  options += fmt::format("--signal=USR2@{:.0f}\n", std::max(kMinSignalSeconds, std::ceil(2 * job.save_s) + 60));
  if (job.memory_bytes > 0) {
    options += fmt::format("--mem-per-cpu={:.0f}M\n", std::ceil(job.memory_bytes / job.cpus / 1048576));
  }
  options += "--requeue\n--open-mode=append\n--output=%x-%j.out\n";
  std::string script = "#!/usr/bin/env bash\n";
  for (std::size_t begin = 0; begin < options.size();) {
    const std::size_t end = options.find('\n', begin) + 1;
    script += "#SBATCH " + options.substr(begin, end - begin);
    begin = end;
  }
  script += std::string("#\n# usage: sbatch THIS_FILE [ARGUMENTS OF TRAINER]\n") + kStart + " ";
  for (const std::string& argument : job.arguments) script += shell_word(argument) + " ";
  return script + kEnd;
}

}  // namespace lockstep::trainer
