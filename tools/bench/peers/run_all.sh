#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck disable=SC2012,SC2015,SC2034,SC2086,SC2164
# Run the CPU set (two ranks) and append the JSON lines to the file given.
# usage: run_all.sh OUT.jsonl [section...]   sections: mlp gpt resnet mnist collectives startup loader checkpoint
# PYTHON: the interpreter (its torchrun is used); DATA: folder with mnist10k/ and tinyshakespeare/;
# FULL=1: the rarer variants too; SCRATCH: folder on the disk to measure; HOROVOD_PYTHON: an interpreter that has Horovod (optional)
set -u
cd "$(dirname "$0")"
OUT=$(realpath -m "${1:?usage: run_all.sh OUT.jsonl [section...]}"); shift
SECTIONS=${*:-mlp gpt resnet mnist collectives startup loader checkpoint}
export PYTHON=${PYTHON:-python3}
export TORCHRUN=${TORCHRUN:-$(dirname "$(command -v "$PYTHON")")/torchrun}
DATA=$(realpath "${DATA:-../../../tests/data}")
SCRATCH=${SCRATCH:-${TMPDIR:-/tmp}/peers}
TEXT=$DATA/tinyshakespeare/input.txt
MNIST=$DATA/mnist10k
export OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# By default malloc gives gradient buffers back to the kernel at every step and their pages are faulted in again.
# These settings keep them; the best of several tried is MALLOC (jemalloc where it is installed).
GLIBC="MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 MALLOC_TOP_PAD_=67108864"
preload() { ls /usr/lib/*/"$1" /usr/lib64/"$1" /usr/lib/"$1" 2>/dev/null | head -n 1; }
JEMALLOC=$(preload libjemalloc.so.2)
TCMALLOC=$(preload libtcmalloc_minimal.so.4)
MALLOC=$GLIBC M="glibc tuned"
if [ -n "$JEMALLOC" ]; then
  M="jemalloc"
  MALLOC="LD_PRELOAD=$JEMALLOC MALLOC_CONF=oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1,background_thread:true,metadata_thp:auto"
fi

QUIET=${QUIET:-0}   # seconds in all that may be spent waiting for other processes to leave the cores
busy() { awk '/^cpu /{print $2+$3+$4+$7+$8}' /proc/stat; }
wait_quiet() {
  while [ "$QUIET" -gt 0 ]; do
    local a b; a=$(busy); sleep 1; b=$(busy); QUIET=$((QUIET - 1))
    [ $((b - a)) -le 10 ] && break
  done
}

disturbed() { [[ $1 =~ \"other_cores\":\ ([0-9.]+) ]] && awk -v x="${BASH_REMATCH[1]}" 'BEGIN { exit !(x > 0.1) }'; }
RETRY=${RETRY:-0}   # how often a result that other processes disturbed is taken again (the last one is kept)
launch() {  # number of ranks (or hvd), label, then script and arguments; ENVS: extra environment
  local n=$1 label=$2 line try; shift 2
  for try in $(seq 0 "$RETRY"); do
    wait_quiet
    local port=$((29500 + RANDOM % 400)) cmd=("$PYTHON")
    case $n in
      1) ;;
      hvd) cmd=(mpirun --bind-to none --oversubscribe -np 2 "$HOROVOD_PYTHON") ;;
      *) cmd=("$TORCHRUN" --nproc-per-node "$n" --master-port "$port") ;;
    esac
    line=$(env ${ENVS:-} MASTER_PORT="$port" PEER_LAUNCH_TIME="$(date +%s.%N)" "${cmd[@]}" "$@" --label "$label" 2>>"${LOG:-/dev/null}" | grep '^{' | tail -n 1)
    [ -n "$line" ] && disturbed "$line" || break
  done
  if [ -n "$line" ]; then echo "$line" >> "$OUT"; else echo "no result: $label" >&2; fi
}

mlp() {
  local best="--gradient-as-bucket-view --static-graph"
  for b in 8 64; do
    launch 1 "floor, 1 rank alone" ddp_mlp.py --batch $b --sync none
    launch 2 "floor" ddp_mlp.py --batch $b --sync none
    ENVS=$MALLOC launch 2 "floor, $M" ddp_mlp.py --batch $b --sync none
    launch 2 "ddp default" ddp_mlp.py --batch $b
    launch 2 "ddp bucket view + static graph" ddp_mlp.py --batch $b $best
    ENVS=$MALLOC launch 2 "ddp default, $M" ddp_mlp.py --batch $b
    ENVS=$MALLOC launch 2 "ddp bucket view + static graph, $M" ddp_mlp.py --batch $b $best
  done
  ENVS=$GLIBC launch 2 "ddp bucket view + static graph, glibc tuned" ddp_mlp.py $best
  [ -n "${FULL:-}" ] && [ -n "$TCMALLOC" ] && ENVS="LD_PRELOAD=$TCMALLOC TCMALLOC_RELEASE_RATE=0" launch 2 "ddp bucket view + static graph, tcmalloc" ddp_mlp.py $best
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "ddp 4 MB buckets, bucket view, $M" ddp_mlp.py $best --bucket-cap-mb 4
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "ddp 100 MB buckets, bucket view, $M" ddp_mlp.py $best --bucket-cap-mb 100
  ENVS=$MALLOC launch 2 "ddp bf16 hook, bucket view, $M" ddp_mlp.py --gradient-as-bucket-view --hook bf16
  ENVS=$MALLOC launch 2 "ddp keep grads, bucket view, $M" ddp_mlp.py $best --keep-grads
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "flat all_reduce, $M" ddp_mlp.py --sync flat
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "all_reduce per parameter, $M" ddp_mlp.py --sync per_param
  if [ -n "${HOROVOD_PYTHON:-}" ]; then
    ENVS=$GLIBC launch hvd "horovod over MPI, glibc tuned" ddp_mlp.py --sync horovod
  fi
  for i in default foreach fused; do
    ENVS=$MALLOC launch 2 "adamw $i, bucket view, $M" ddp_mlp.py --optimizer adamw --impl $i $best
  done
  ENVS=$MALLOC launch 2 "adamw fused floor, $M" ddp_mlp.py --optimizer adamw --impl fused --sync none
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "adamw zero1, $M" ddp_mlp.py --optimizer adamw --sync zero1 --gradient-as-bucket-view
}
gpt() {
  launch 2 "cpu_char, 2 ranks" ddp_gpt.py --data "$TEXT"
  ENVS=$MALLOC launch 2 "cpu_char, 2 ranks, fused, bucket view, $M" ddp_gpt.py --data "$TEXT" --impl fused --gradient-as-bucket-view --static-graph --steps 300
  launch 1 "cpu_char, 1 rank" ddp_gpt.py --data "$TEXT" --steps 300
  OMP_NUM_THREADS=2 launch 1 "cpu_char, 1 process of 2 threads" ddp_gpt.py --data "$TEXT" --steps 300
  [ -n "${FULL:-}" ] && ENVS=$MALLOC launch 2 "cpu_char, 2 ranks, compiled, fused, $M" ddp_gpt.py --data "$TEXT" --impl fused --compile --steps 300
}
resnet() {
  launch 2 "floor" ddp_resnet.py --sync none --iters 2 --warmup 1
  launch 2 "ddp" ddp_resnet.py --iters 3 --warmup 1
  ENVS=$MALLOC launch 2 "floor, channels_last, $M" ddp_resnet.py --channels-last --sync none --iters 2 --warmup 1
  ENVS=$MALLOC launch 2 "ddp, channels_last, bucket view, $M" ddp_resnet.py --channels-last --gradient-as-bucket-view --static-graph --iters 3 --warmup 2
  ENVS=$MALLOC launch 2 "ddp, bf16, channels_last, bucket view, $M" ddp_resnet.py --dtype bf16 --channels-last --gradient-as-bucket-view --static-graph --iters 3 --warmup 2
}
mnist() {
  launch 2 "2 ranks, dataset" mnist_mlp.py "$MNIST"
  launch 1 "1 rank, dataset" mnist_mlp.py "$MNIST"
  launch 2 "2 ranks, dataset, 1 worker" mnist_mlp.py "$MNIST" --workers 1
  ENVS=$MALLOC launch 2 "2 ranks, tensor, fused, $M" mnist_mlp.py "$MNIST" --loader tensor --impl fused
  ENVS=$MALLOC launch 1 "1 rank, tensor, fused, $M" mnist_mlp.py "$MNIST" --loader tensor --impl fused
  ENVS=$MALLOC launch 2 "2 ranks, cnn, tensor, 1 epoch, $M" mnist_mlp.py "$MNIST" --model cnn --epochs 1 --loader tensor
}
collectives() {
  launch 2 "gloo 2 ranks" collectives.py --budget 0.5
  launch 4 "gloo 4 ranks on 2 cores" collectives.py --budget 0.3 --max-mb 64
}
startup() {
  bash startup.sh 2 "${REPS:-3}" >> "$OUT"
}
loader() {
  launch 1 "" dataloader.py --mnist "$MNIST" --folder "$SCRATCH/data" --seconds 1
}
checkpoint() {
  launch 1 "1 rank" checkpoint.py --folder "$SCRATCH/checkpoint" ${LARGE:+--large}
  launch 2 "2 ranks" checkpoint.py --folder "$SCRATCH/checkpoint" --mb 400
}

mkdir -p "$SCRATCH" "$(dirname "$OUT")"
for s in $SECTIONS; do
  t=$SECONDS
  "$s"
  echo "$s: $((SECONDS - t)) s, load average $(cut -d' ' -f1-3 /proc/loadavg)" >&2
done
