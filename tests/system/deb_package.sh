#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The Debian package has what programs need, depends on the libraries that its programs load, and has no part of
# LibTorch. A C program is compiled and a CMake project is configured with what is in it. Exit code 77: there is no
# dpkg.
set -euo pipefail

command -v dpkg-deb >/dev/null || exit 77
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

fail() {
  echo "deb_package.sh: $*" >&2
  exit 1
}

cpack --config "$LOCKSTEP_BINARY_DIR/CPackConfig.cmake" -D CPACK_DEBIAN_COMPRESSION_TYPE=none -B "$folder" >log 2>&1 ||
  fail "$(<log)"
package=$(echo lockstep_*.deb)
dpkg-deb --info "$package" >info
dpkg-deb --extract "$package" root

for file in bin/trainer bin/ckpt include/lockstep/lockstep.h include/lockstep/session.hpp lib/liblockstep.so \
  lib/liblockstep.so.0 lib/liblockstep_engine.a lib/pkgconfig/lockstep.pc lib/cmake/Lockstep/LockstepConfig.cmake \
  share/lockstep/lockstep.F90 share/lockstep/Makefile.inc share/lockstep/configs/digits.ini share/man/man1/trainer.1 \
  share/doc/lockstep/copyright share/lockstep/tools/setup; do
  [[ -e root/usr/$file ]] || fail "$file is missing"
done
[[ -z $(find root -name '*torch*.so*' -o -name 'libc10*' -o -name modulefiles) ]] || fail "$(find root)"
[[ -z $(grep -rlF "$folder" root || true) ]] || fail "the folder of the package is in $(grep -rlF "$folder" root)"

depends=$(sed -n 's/^ Depends: //p' info)
if command -v dpkg-shlibdeps >/dev/null; then
  # Each shared library of the system that the programs name belongs to a package that is named.
  readelf -d root/usr/bin/trainer root/usr/lib/liblockstep.so | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | sort -u >names
  ldconfig -p | awk 'NR == FNR { is_needed[$1] = 1; next } is_needed[$1] && !found[$1]++ { print $NF }' names - |
    xargs readlink -f | sed 's|^/usr||; s|^|*|' >patterns # dpkg can know it as a file of /lib instead of /usr/lib
  mapfile -t patterns <patterns
  ((${#patterns[@]} > 5)) || fail "the programs name only: $(<names)"
  dpkg-query --search "${patterns[@]}" >owners 2>/dev/null || true # a library can belong to no package
  while IFS=: read -r owner library; do
    [[ $owner == diversion* || $depends == *"$owner"* ]] || fail "$owner with $library is not in: $depends"
  done <owners
fi
[[ $depends == *libboost-program-options* && $depends == *libfmt* ]] || fail "Depends: $depends"
[[ $(<info) == *"LOCKSTEP_TORCH_DIR"* ]] || fail "$(<info)"

root/usr/share/lockstep/tools/setup --help >help || fail "setup does not run"
root/usr/bin/ckpt --help >help || fail "ckpt does not run"
export PKG_CONFIG_PATH=$folder/root/usr/lib/pkgconfig
if command -v pkg-config >/dev/null && command -v mpicc >/dev/null; then
  read -ra flags <<<"$(pkg-config --cflags --libs lockstep)"
  mpicc -std=c99 "$LOCKSTEP_SOURCE_DIR/tests/system/c_caller.c" -o caller "${flags[@]}" -lm
  ./caller quiet || fail "the C program does not run"
fi
cmake -S "$LOCKSTEP_SOURCE_DIR/examples" -B examples -DCMAKE_PREFIX_PATH="$folder/root/usr" >log 2>&1 || fail "$(<log)"
