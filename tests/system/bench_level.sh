#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# LOCKSTEP_CPU lowers PyTorch as it lowers Lockstep: a program in place of Python notes its environment and prints what
# a peer prints. Another level later leaves no variable of the first one.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/python" <<'END'
#!/bin/sh
[ "$1" = -c ] || { env >"$(dirname "$0")/environment" && echo '{"peak_rss_mb": [400], "startup_s": 2000}'; }
END
chmod +x "$work/python"
env PYTHON="$work/python" LOCKSTEP_CPU=generic LOCKSTEP_BENCH_RESULTS="$work/results" \
  "$LOCKSTEP_SOURCE_DIR/tools/bench/startup" --quick

expect() { # REGEX FILE
  grep -qE "$1" "$2" || { echo "not found: $1 in:" && cat "$2" && exit 1; }
}
expect '^ATEN_CPU_CAPABILITY=default$' "$work/environment"
expect '^ONEDNN_MAX_CPU_ISA=SSE41$' "$work/environment"
expect '^MKL_CBWR=COMPATIBLE$' "$work/environment"
expect '^\{"name": "startup.time", "ours": [0-9.]+, "theirs": 2000, "ratio": 0.00[0-9], "repeats": 1\}$' "$work/results"
expect '^\{"name": "startup.memory", "ours": [0-9]+, "theirs": 400, "ratio": [0-9.]+, "repeats": 1\}$' "$work/results"

# shellcheck source=tools/common.sh
source "$LOCKSTEP_SOURCE_DIR/tools/common.sh"
# shellcheck source=tools/bench/measure.sh
source "$LOCKSTEP_SOURCE_DIR/tools/bench/measure.sh"
build_programs trainer
level=$("$build/trainer" --version | sed -n 's/^processor_level //p')
use_level generic
[[ $ATEN_CPU_CAPABILITY == default && $MKL_CBWR == COMPATIBLE ]]
use_level "$level"
[[ $LOCKSTEP_CPU == "$level" && ($level == generic || -z ${MKL_CBWR:-}) ]]
