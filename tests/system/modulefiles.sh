#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# usage: modulefiles.sh lmod|tcl
#
# Loads and unloads the installed module file in Lmod or in Environment Modules: in its prefix, in a prefix that was
# moved, and as a copy elsewhere. LOCKSTEP_LMOD and LOCKSTEP_MODULECMD name the programs where they are not in the usual
# places. Exit code 77: the program is absent.
set -euo pipefail

main() {
  local places
  kind=$1
  case $kind in
    lmod)
      places=("${LOCKSTEP_LMOD:-}" "${LMOD_CMD:-}" /usr/share/lmod/lmod/libexec/lmod /opt/lmod/lmod/libexec/lmod)
      ;;
    tcl)
      places=("${LOCKSTEP_MODULECMD:-}" "${MODULES_CMD:-}" /usr/lib/x86_64-linux-gnu/modulecmd.tcl
        /usr/lib/modulecmd.tcl /usr/share/Modules/libexec/modulecmd.tcl /usr/share/modules/libexec/modulecmd.tcl)
      ;;
    *) fail "unknown argument '$kind'" ;;
  esac
  find_command "${places[@]}"
  forget_modules

  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  cmake --install "$LOCKSTEP_BINARY_DIR" --prefix "$folder/first" --component modulefiles >"$folder/log" ||
    fail "$(<"$folder/log")"
  mkdir -p "$folder/first/include/lockstep" "$folder/first/bin" "$folder/home"
  touch "$folder/first/include/lockstep/lockstep.h"
  export HOME=$folder/home # no user's own settings and caches
  version=$(basename "$folder/first/share/lockstep/modulefiles/lockstep/"*.lua .lua)

  check_prefix "$folder/first"
  mv "$folder/first" "$folder/moved"
  check_prefix "$folder/moved"
  # A copy in the tree of a site has only the prefix of the installation.
  mkdir -p "$folder/site"
  cp -r "$folder/moved/share/lockstep/modulefiles/lockstep" "$folder/site"
  (
    use "$folder/site"
    module load lockstep
    expect LOCKSTEP_ROOT "$folder/first"
  )
  check_conflict
  check_texts
}

fail() {
  echo "modulefiles.sh: $*" >&2
  exit 1
}

# find_command PROGRAM...: the first of them that is there.
find_command() {
  for program in "$@"; do
    [[ ! -x $program ]] || return 0
  done
  echo "$kind is absent"
  exit 77
}

# forget_modules: leaves nothing of the modules that the caller has loaded.
forget_modules() {
  local name
  for name in $(compgen -e | grep -E '^(_*LMOD_|__MODULES_|_ModuleTable|LOADEDMODULES$|_LMFILES_$|MODULEPATH)'); do
    unset "$name"
  done
  unset CPATH LIBRARY_PATH LD_LIBRARY_PATH CMAKE_PREFIX_PATH PKG_CONFIG_PATH MANPATH LOCKSTEP_ROOT
}

use() { export MODULEPATH=$1; }

module() {
  local commands
  commands=$("$program" bash "$@" 2>"$folder/messages") || true
  eval "$commands" || true
}

# expect NAME VALUE
expect() { [[ ${!1-} == "$2" ]] || fail "$1 is '${!1-}', not '$2': $(<"$folder/messages")"; }

# check_prefix PREFIX: a load and an unload.
check_prefix() (
  local prefix=$1 path=$PATH
  use "$prefix/share/lockstep/modulefiles"
  export CPATH=/earlier
  module load "lockstep/$version"
  expect LOADEDMODULES "lockstep/$version"
  expect LOCKSTEP_ROOT "$prefix"
  [[ $PATH == "$prefix/bin:"* ]] || fail "PATH is $PATH"
  expect LD_LIBRARY_PATH "$prefix/lib"
  expect LIBRARY_PATH "$prefix/lib"
  expect CPATH "$prefix/include:/earlier"
  expect CMAKE_PREFIX_PATH "$prefix"
  expect PKG_CONFIG_PATH "$prefix/lib/pkgconfig"
  [[ $MANPATH =~ ^"$prefix/share/man"::?$ ]] || fail "MANPATH is $MANPATH" # an empty element: the pages of the system
  module unload lockstep
  expect LOCKSTEP_ROOT ""
  expect LD_LIBRARY_PATH ""
  expect CPATH /earlier
  [[ $PATH != *"$prefix"* ]] || fail "PATH is $PATH, was $path"
)

# check_conflict: of two versions, one is loaded.
check_conflict() (
  local lockstep=$folder/site/lockstep
  cp "$lockstep/$version" "$lockstep/9.0"
  cp "$lockstep/$version.lua" "$lockstep/9.0.lua"
  use "$folder/site"
  module load "lockstep/$version"
  module load lockstep/9.0
  case $kind in
    lmod) expect LOADEDMODULES lockstep/9.0 ;; # takes the place of the other
    tcl) expect LOADEDMODULES "lockstep/$version" ;;
  esac
)

check_texts() (
  use "$folder/site"
  local texts
  texts=$("$program" bash help "lockstep/$version" 2>&1; "$program" bash whatis "lockstep/$version" 2>&1)
  [[ $texts == *"pkg-config --cflags --libs lockstep"* ]] || fail "$texts"
  [[ $texts == *"istributed training with LibTorch and MPI"* ]] || fail "$texts"
  [[ $texts != *@* ]] || fail "$texts"
)

main "$@"
