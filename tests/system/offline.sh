#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# `tools/setup --pack` writes a LibTorch into a file, and --unpack and LOCKSTEP_OFFLINE put it into place without a
# network. The LibTorch has small files here.
set -euo pipefail

setup=$LOCKSTEP_SOURCE_DIR/tools/setup
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
export LOCKSTEP_SKIP_PACKAGES=1 LOCKSTEP_TORCH_DIR=
unset LOCKSTEP_OFFLINE

fail() {
  echo "offline.sh: $*" >&2
  exit 1
}

# expect CODE TEXT COMMAND...
expect() {
  local code=0
  "${@:3}" >output 2>&1 || code=$?
  [[ $code == "$1" && $(<output) == *"$2"* ]] || fail "${*:3} ended with $code: $(<output)"
}

# is_copy FOLDER: whether it has the same LibTorch, and nothing that was left half done.
is_copy() {
  diff -r deps/torch-2.11.0 "$1/torch-2.11.0" || fail "$1 has another LibTorch"
  [[ $(cd "$1" && echo *) == torch-2.11.0 ]] || fail "$1 has $(ls "$1")"
}

# The SHA-256 of the wheels, as setup lists them.
eval "$(sed -n "/^cpu_wheels='/,/'\$/p; /^header_wheels='/,/'\$/p" "$setup")"
# shellcheck disable=SC2154 # both come from setup
stamps=("$(awk 'NF { print $4 }' <<<"$cpu_wheels")" "$(awk 'NF { print $4 }' <<<"$header_wheels")")
torch=deps/torch-2.11.0
mkdir -p $torch/torch/{lib,include/ATen/core} $torch/nvidia/cu13/{lib,include}
echo "${stamps[0]}" >$torch/.complete
echo cpu >$torch/torch/lib/libtorch_cpu.so
echo c10 >$torch/torch/lib/libc10.so
echo tensor >$torch/torch/include/ATen/core/Tensor.h
touch $torch/nvidia/cu13/lib/{libcudart,libcupti}.so.13

expect 2 "run tools/setup first" env LOCKSTEP_DEPS=empty "$setup" --pack small.tar
expect 0 "" env LOCKSTEP_DEPS=deps "$setup" --pack small.tar
[[ $(tar -tf small.tar | sed -n 1p) == SHA256SUMS ]] || fail "the sums are not in front"
expect 0 "LibTorch is in" env LOCKSTEP_DEPS=first "$setup" --unpack small.tar
is_copy first
expect 0 "" env LOCKSTEP_DEPS=second LOCKSTEP_OFFLINE="$folder/small.tar" "$setup" --build
is_copy second
mv small.tar elsewhere.tar
expect 0 "" env LOCKSTEP_DEPS=second LOCKSTEP_OFFLINE="$folder/small.tar" "$setup" # is there: the file is not needed
expect 2 "no libraries of CUDA" env LOCKSTEP_DEPS=second LOCKSTEP_OFFLINE="$folder/elsewhere.tar" "$setup" --cuda
is_copy second

# A file with headers of CUDA adds them to what is there, and keeps the rest.
echo "${stamps[1]}" >$torch/.complete-cuda-headers
echo header >$torch/nvidia/cu13/include/header.h
expect 0 "" env LOCKSTEP_DEPS=deps "$setup" --pack large.tar.gz
gzip -t large.tar.gz
touch first/torch-2.11.0/nvidia/more
expect 0 "" env LOCKSTEP_DEPS=first "$setup" --unpack large.tar.gz
rm first/torch-2.11.0/nvidia/more
is_copy first

# What is half there is replaced.
rm second/torch-2.11.0/torch/lib/libc10.so
expect 0 "" env LOCKSTEP_DEPS=second LOCKSTEP_OFFLINE="$folder/large.tar.gz" "$setup"
is_copy second

# Files that cannot be used leave nothing.
sed 's/tensor/tansor/' elsewhere.tar >damaged.tar
expect 1 "damaged.tar is damaged" env LOCKSTEP_DEPS=third "$setup" --unpack damaged.tar
tar -cf foreign.tar output
expect 2 "was not written by tools/setup --pack" env LOCKSTEP_DEPS=third "$setup" --unpack foreign.tar
expect 2 "another version than LibTorch 2.10.0" env LOCKSTEP_DEPS=third "$setup" --torch 2.10.0 --unpack elsewhere.tar
expect 2 "nowhere.tar cannot be read" env LOCKSTEP_DEPS=third "$setup" --unpack nowhere.tar
expect 2 "needs the name of a file" "$setup" --pack
[[ ! -e third/torch-2.11.0 && $(echo third/*.partial) == 'third/*.partial' ]] || fail "third has $(ls third)"
