#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: bench_row.sh RESULTS BENCHMARK [ARGUMENT...]
#
# Runs a benchmark of tools/bench in its quick form without PyTorch. It must end well with RESULTS results, each of
# which has a positive time or size.
set -euo pipefail

expected=$1
benchmark=$2
LOCKSTEP_BENCH_RESULTS=$(mktemp)
export LOCKSTEP_BENCH_RESULTS PYTHON=no-python
trap 'rm -f "$LOCKSTEP_BENCH_RESULTS"' EXIT
"$LOCKSTEP_SOURCE_DIR/tools/bench/$benchmark" --quick "${@:3}"

cat "$LOCKSTEP_BENCH_RESULTS"
result="^\{\"name\": \"${benchmark}[a-z0-9_.]*\", \"ours\": [0-9.e+-]*[1-9]"
count=$(grep -cE "$result" "$LOCKSTEP_BENCH_RESULTS" || true)
if ((count != expected)); then
  echo "tools/bench/$benchmark gave $count results with positive values instead of $expected"
  exit 1
fi
