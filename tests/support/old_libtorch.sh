#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: old_libtorch.sh SOURCE-ROOT
#
# A LibTorch before 2.9, the oldest version that works, is refused by tools/setup and by CMake.
set -euo pipefail

root=$1
torch=$(mktemp -d)
trap 'rm -rf "$torch"' EXIT
mkdir -p "$torch"/lib "$torch"/include/torch/csrc/api/include/torch
touch "$torch"/lib/lib{torch_cpu,c10}.so
printf '#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 8\n' \
  >"$torch"/include/torch/csrc/api/include/torch/version.h

# expect CODE SENTENCE COMMAND...
expect() {
  local code=0 wanted=$1 sentence=$2 output
  shift 2
  output=$("$@" 2>&1) || code=$?
  [[ $code == "$wanted" && $output == *"$sentence"* ]] && return
  echo "exit code $code of '$*': $output"
  exit 1
}

expect 2 'is older than 2.9' env LOCKSTEP_SKIP_PACKAGES=1 LOCKSTEP_TORCH_DIR="$torch" "$root"/tools/setup
expect 1 'is too old: 2.9 or newer is needed' cmake -DLOCKSTEP_TORCH_DIR="$torch" -P "$root"/tools/cmake/Torch.cmake
