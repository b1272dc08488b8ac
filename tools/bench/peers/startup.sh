#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2164
# Start-up of `torchrun --nproc-per-node N` against `mpirun -np N`: launch to first finished DDP step, and to exit.
# usage: startup.sh [ranks] [repetitions]     PYTHON and TORCHRUN name the programs
set -u
cd "$(dirname "$0")"
N=${1:-2} REPS=${2:-5}
PYTHON=${PYTHON:-python3}
TORCHRUN=${TORCHRUN:-$(dirname "$(command -v "$PYTHON")")/torchrun}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

once() {  # label, command...: one JSON line, with the exit time added
  local label=$1 line start end; shift
  start=$(date +%s.%N)
  line=$(PEER_LAUNCH_TIME=$start "$@" 2>/dev/null | tail -n 1)
  end=$(date +%s.%N)
  [[ $line == \{* ]] || line='{"name": "startup_'$label'"}'
  printf '%s, "case": "%s", "exit_s": %.3f}\n' "${line%\}}" "$label" "$(echo "$end - $start" | bc)"
}

for _ in $(seq "$REPS"); do
  once torchrun "$TORCHRUN" --nproc-per-node "$N" --master-port $((29700 + RANDOM % 200)) startup_step.py
  if command -v mpirun >/dev/null; then
    MASTER_PORT=$((29700 + RANDOM % 200)) once mpirun mpirun --bind-to none --oversubscribe -np "$N" "$PYTHON" startup_step.py
    once mpirun_true mpirun --bind-to none --oversubscribe -np "$N" true
  fi
  once one_process "$PYTHON" startup_step.py
  once import_torch "$PYTHON" -c "import torch"
done
