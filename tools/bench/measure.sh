# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# What the benches and tools/same_speed share; sourced after common.sh.

now() { date +%s.%N; }
load() { cut -d' ' -f1-3 /proc/loadavg; }

# median_of FILE [COLUMN [FORMAT]]: of column 1 in the shortest form unless told otherwise
median_of() {
  sort -n -k "${2:-1},${2:-1}" "$1" | awk -v c="${2:-1}" -v f="${3:-%s}" '{ v[NR] = $c }
    END { printf f "\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
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
