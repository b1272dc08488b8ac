# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# What the benchmarks and tools/same_speed share; sourced after common.sh.

# build_programs TARGET...: builds the trainer and them, unless LOCKSTEP_BINARY_DIR names a build that has them, as it
# does for tests. Sets mpirun, and lowers PyTorch to the level of LOCKSTEP_CPU.
# shellcheck disable=SC2154 # root comes from common.sh
build_programs() {
  if [[ -n ${LOCKSTEP_BINARY_DIR:-} ]]; then
    build=$LOCKSTEP_BINARY_DIR
  else
    "$root/tools/setup" --build
    build_targets trainer "$@"
  fi
  use_open_mpi_anywhere
  # shellcheck disable=SC2034 # for the benchmarks
  read -ra mpirun <<<"$(setting LOCKSTEP_MPIRUN) $(setting LOCKSTEP_MPIRUN_FLAGS)"
  if [[ -n ${LOCKSTEP_CPU:-} ]]; then use_level "$LOCKSTEP_CPU"; fi
}

# use_level LEVEL: lowers Lockstep, and PyTorch by the variables that the trainer sets for its own libraries.
limits=()
use_level() {
  local versions line
  ((${#limits[@]} == 0)) || unset "${limits[@]%%=*}"
  export LOCKSTEP_CPU=$1
  versions=$("$build/trainer" --version 2>&1) || die 2 "$versions"
  mapfile -t limits < <(grep -E '^[A-Z_]+=' <<<"$versions")
  for line in "${limits[@]}"; do export "${line?}"; done
}

# find_python MODULE...: sets python, and peer_missing unless it has these modules.
find_python() {
  local modules
  modules=$(printf ', %s' "$@")
  python=${PYTHON:-${LOCKSTEP_PEER_PYTHON:-python3}} peer_missing=
  ! "$python" -c "import ${modules#, }" 2>/dev/null || return 0
  # shellcheck disable=SC2034 # for the benchmarks
  peer_missing="$python does not have ${modules#, }"
  say "only Lockstep is measured, because $python does not have all of: ${modules#, }. To compare with PyTorch, run
  python3 -m venv ~/peers && ~/peers/bin/pip install torch torchvision timm safetensors h5py
and set PYTHON=~/peers/bin/python"
}

# result NAME OURS [THEIRS]: appends a line of JSON to the file that LOCKSTEP_BENCH_RESULTS names. OURS and THEIRS are
# times or sizes, of which the ratio counts, and medians of `repeats` values.
# shellcheck disable=SC2154
result() {
  [[ -n ${LOCKSTEP_BENCH_RESULTS:-} ]] || return 0
  awk -v name="$1" -v ours="$2" -v theirs="${3:-}" -v repeats="$repeats" 'BEGIN {
    printf "{\"name\": \"%s\", \"ours\": %.6g", name, ours
    if (theirs != "") printf ", \"theirs\": %.6g, \"ratio\": %.3f", theirs, ours / theirs
    printf ", \"repeats\": %d}\n", repeats }' >>"$LOCKSTEP_BENCH_RESULTS"
}

# rate_result NAME OURS [THEIRS]: the same for numbers of images per second.
rate_result() { result "$1" "$(inverse "$2")" "$(inverse "${3:-}")"; }
inverse() { [[ -z $1 ]] || awk -v x="$1" 'BEGIN { print 1 / x }'; }

now() { date +%s.%N; }
load() { cut -d' ' -f1-3 /proc/loadavg; }

# median_of FILE [COLUMN [FORMAT]]: of column 1 in the shortest form unless told otherwise
median_of() {
  sort -n -k "${2:-1},${2:-1}" "$1" | awk -v c="${2:-1}" -v f="${3:-%s}" '{ v[NR] = $c }
    END { printf f "\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# read_rows FILE: the rows of rows.txt, each on a line without blanks around its columns
read_rows() {
  awk '/^#/ || !NF { next } /^ / { sub(/^ +/, " "); line = line $0; next } { print_line(); line = $0 }
    END { print_line() }
    function print_line() { if (line == "") return; gsub(/ *\| */, "|", line); print line }' "$1"
}

# field NAME: of the JSON line in the variable line
# shellcheck disable=SC2154
field() { sed -nE "s/.*\"$1\": \[?(-?[0-9][0-9.e+-]*).*/\1/p" <<<"$line"; }

# --- the work of a row: arguments of a program, one a line ---

# timed_steps RANKS SHARE WARMUP TIMED ARGUMENT...: of bench_ddp, with SHARE samples a rank
timed_steps() {
  printf '%s\n' --data.name=noise --data.noise_ranks="$1" --data.noise_share="$2" --data.shuffle=false \
    --train.global_batch_size=$(($1 * $2)) --train.max_epochs=0 --train.max_steps=$(($3 + 2 * $4 + 1)) \
    --model.name=timed --model.warmup_steps="$3" --model.timed_steps="$4" "${@:5}"
}

# mlp_steps OPTIMIZER: the model and the optimizer of the rows mlp and mlp_adamw
mlp_steps() {
  printf '%s\n' --model.inner=mlp6 --optim.name="$1" --optim.lr=0.01
  [[ $1 != adamw ]] || echo --optim.weight_decay=0.01
}

# mnist_run EPOCHS
# shellcheck disable=SC2154 # samples comes from common.sh
mnist_run() {
  printf '%s\n' --data.name=idx --data.path="$samples/mnist10k" --model.name=mlp --model.hidden=512 \
    --train.global_batch_size=64 --train.max_epochs="$1" --optim.name=adamw --optim.lr=0.001
}

# gpt_run CONFIGURATION
gpt_run() { printf '%s\n' --config="$1" --data.path="$samples/tinyshakespeare/input.txt"; }

# loop_pairs PAIRS BLOCK RANKS: of bench_loop
loop_pairs() {
  printf '%s\n' --model.name=mlp --model.hidden=1024 --train.global_batch_size=$((96 * $3)) --data.train_size=200000 \
    --train.max_epochs=0 --train.max_steps=$((($1 + 2) * $2)) --train.hooks=bare_loop,block="$2"
}
