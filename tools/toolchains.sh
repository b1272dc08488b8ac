# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# The toolchains of `tools/test --toolchain`: other compilers, MPI libraries and versions of LibTorch. Sourced after
# common.sh.

# toolchains_of NAME: one word for each build folder.
toolchains_of() {
  case $1 in
    clang | mpich) echo "$1" ;;
    torch-old) echo "torch-2.9.1 torch-2.10.0" ;;
    *) die 2 "unknown toolchain '$1'; choose one of: clang, mpich, torch-old" ;;
  esac
}

# use_toolchain WORD: sets the build folder, and setup_options for tools/setup.
# shellcheck disable=SC2154 # root and LOCKSTEP_DEPS come from common.sh
use_toolchain() {
  local options=(-DLOCKSTEP_USE_NCCL=off)
  setup_options=(--build)
  case $1 in
    clang) setup_options+=(--clang) && options+=(-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++) ;;
    mpich)
      setup_options+=(--mpich)
      options+=(-DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE="$(command -v mpiexec.mpich || echo mpiexec.mpich)")
      options+=(-DLOCKSTEP_TEST_RANKS="1 2 3 4") # its ranks wait actively: eight on two processors take minutes
      ;;
    torch-*)
      # shellcheck disable=SC2034 # for tools/test
      setup_options+=(--torch "${1#torch-}")
      options+=(-DLOCKSTEP_TORCH_DIR="$LOCKSTEP_DEPS/$1/torch")
      ;;
  esac
  use_build_folder "$root/build-$1" "${options[@]}"
}

# exchange_checkpoints OTHER-BUILD: a run of this build is killed and resumed; then each build resumes a checkpoint of
# the other. Prints what failed.
exchange_checkpoints() {
  local other=$1 own=$build folder length=(--data.train_size=1200 --train.micro_batch=24 --log.every=10)
  folder=$(mktemp -d)
  train "$own" "$folder/own" 60 --ckpt.every=10 & # killed after its first checkpoint
  until compgen -G "$folder/own/ckpt/step-*" >/dev/null || ! kill -0 $! 2>/dev/null; do sleep 0.1; done
  pkill -KILL -f "run.dir=$folder/own" || true
  wait $! || true
  if ! { train "$own" "$folder/own" 60 --resume=auto && train "$other" "$folder/own" 80 --resume=auto &&
    train "$other" "$folder/other" 20 && train "$own" "$folder/other" 40 --resume=auto; }; then
    cat "$folder/log"
    return 1
  fi
  rm -rf "$folder"
}

# train BUILD RUN-FOLDER STEPS ARGUMENT...: two ranks, within exchange_checkpoints.
train() {
  local build=$1 run=$2 steps=$3 mpirun
  shift 3
  read -ra mpirun <<<"$(setting LOCKSTEP_MPIRUN) $(setting LOCKSTEP_MPIRUN_FLAGS)"
  OMP_NUM_THREADS=1 "${mpirun[@]}" -np 2 "$build/trainer" --run.dir="$run" --train.max_steps="$steps" \
    "${length[@]}" "$@" >>"$folder/log" 2>&1
}
