# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# Functions that run the programs of several built trees; sourced after common.sh by tools/same_bits and
# tools/same_speed.

# shellcheck disable=SC2154 # root comes from common.sh
renames=$root/tools/renames.txt

# build_of TREE: its build folder. A tree is a folder with sources and build/, or a build folder that lies elsewhere.
build_of() { if [[ -e $1/CMakeCache.txt ]]; then echo "$1"; else echo "$1/build"; fi; }

# sources_of TREE
sources_of() { sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$(build_of "$1")/CMakeCache.txt"; }

# require_tree TREE PROGRAM...: the tree exists and has these programs, such as trainer or tools/bench/bench_ddp.
require_tree() {
  local tree=$1 folder program missing=()
  shift
  folder=$(build_of "$tree")
  [[ -e $folder/CMakeCache.txt ]] || die 2 "$tree is neither a built tree nor a build folder"
  for program in "$@"; do
    [[ -x $folder/$program ]] || missing+=("${program##*/}")
  done
  ((${#missing[@]} == 0)) ||
    die 2 "$tree lacks programs; build them with: cmake --build $folder --target ${missing[*]}"
}

# Sets mpirun: the launcher and its flags.
find_mpirun() {
  use_open_mpi_anywhere
  export OMP_NUM_THREADS=1
  # shellcheck disable=SC2034 # for the tools
  read -ra mpirun <<<"$(setting LOCKSTEP_MPIRUN) $(setting LOCKSTEP_MPIRUN_FLAGS)"
}

# translate PROGRAM ARGUMENT...: sets arguments, with the names of keys and the words of values that PROGRAM knows.
declare -A keys_of=() help_of=()
translate() {
  local program=$1 argument key value
  shift
  if [[ -z ${keys_of[$program]:-} ]]; then
    keys_of[$program]=" $("$program" config | awk 'NR > 1 { print $1 }' | paste -sd' ') "
  fi
  arguments=()
  for argument in "$@"; do
    if [[ $argument =~ ^--([a-z0-9_.]+)=(.*)$ ]]; then
      key=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
      translate_setting "$program"
      translate_value "$program"
      translate_key "$program"
      argument=--$key=$value
    fi
    arguments+=("$argument")
  done
}

# Replaces the variables key and value of translate where the program has another form of the setting.
translate_setting() { # PROGRAM
  local kind new old
  [[ ${keys_of[$1]} != *" $key "* ]] || return 0
  while read -r kind new old; do
    [[ $kind == setting && $new == "$key=$value" ]] || continue
    key=${old%%=*} value=${old#*=}
  done <"$renames"
}

# Replaces the variable key of translate by a name that the program knows. A name may have changed several times.
translate_key() { # PROGRAM
  local known=${keys_of[$1]} names=" $key " kind old new before='' name
  [[ $known != *" $key "* ]] || return 0
  while [[ $names != "$before" ]]; do
    before=$names
    while read -r kind old new; do
      [[ $kind == key ]] || continue
      [[ $names != *" $old "* || $names == *" $new "* ]] || names+="$new "
      [[ $names != *" $new "* || $names == *" $old "* ]] || names+="$old "
    done <"$renames"
  done
  for name in $names; do
    [[ $known != *" $name "* ]] || key=$name
  done
}

# Replaces the words of the variable value of translate.
translate_value() { # PROGRAM
  local kind of old new section=${key%%.*} help
  while read -r kind of old new; do
    [[ $kind == value && $of == "$key" ]] || continue
    help=$1:$section
    [[ -n ${help_of[$help]:-} ]] || help_of[$help]=$("$1" "--help=$section")
    if grep -qw -- "$new" <<<"${help_of[$help]}"; then
      value=$(sed -E "s/(^|[^a-z0-9_])$old(\$|[^a-z0-9_])/\1$new\2/g" <<<"$value")
    else
      value=$(sed -E "s/(^|[^a-z0-9_])$new(\$|[^a-z0-9_])/\1$old\2/g" <<<"$value")
    fi
  done <"$renames"
}

# translate_paths: lines "PATH VALUE" with the newest names, without those that are ignored, in the order of the paths.
# The digest of the whole state, /@state, depends on the names, so it is left out where an array was renamed.
translate_paths() {
  awk 'FNR == NR { if ($1 == "array") { old[++n] = $2; new[n] = $3 } if ($1 == "ignore") ignored[++m] = $2; next }
    n > 0 && $1 == "/@state" { next }
    { path = $1
      for (i = 1; i <= n; ++i) sub(old[i], new[i], path)
      for (i = 1; i <= m; ++i) if (path ~ ignored[i]) next
      sub(/^[^ ]+/, "")
      print path $0 }' "$renames" - | LC_ALL=C sort
}
