# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# What the tools share; they source it right after `set -euo pipefail`.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
build=$root/build
build_log=$build/build.log
cmake_options=()
me=$(basename "$0")

# Where setup keeps LibTorch, for all clones of this user. Exported, since CMake looks there, too.
LOCKSTEP_DEPS=${LOCKSTEP_DEPS:-${HOME:?}/.cache/lockstep}
[[ $LOCKSTEP_DEPS == /* ]] || LOCKSTEP_DEPS=$PWD/$LOCKSTEP_DEPS
export LOCKSTEP_DEPS

# use_build_folder FOLDER CMAKE_OPTION...: builds there, with these options, instead of in build/.
use_build_folder() {
  build=$1 build_log=$1/build.log
  shift
  cmake_options=("$@")
}

# folder_of GIVEN PART DEFAULT: GIVEN unless it is empty, else PART in LOCKSTEP_SHARED, else DEFAULT. Relative paths
# count from the source root. tests/support/folders.cpp does the same for tests.
folder_of() {
  local folder=${1:-${LOCKSTEP_SHARED:+$LOCKSTEP_SHARED/$2}}
  folder=${folder:-$3}
  [[ $folder == /* ]] || folder=$root/$folder
  printf '%s' "$folder"
}

# Golden files, sample data and the programs that the benchmarks compare with.
# shellcheck disable=SC2034 # for the tools
golden=$(folder_of "${LOCKSTEP_GOLDEN:-}" reference tests/golden)
# shellcheck disable=SC2034
samples=$(folder_of "${LOCKSTEP_DATA:-}" data tests/data)
# shellcheck disable=SC2034
peers=$(folder_of "" peers tools/bench/peers)

say() { printf '%s: %s\n' "$me" "$*" >&2; }

# die EXIT_CODE MESSAGE
die() {
  say "$2"
  exit "$1"
}

# print_usage: the comment at the head of the tool.
print_usage() { sed -n '3,/^[^#]/ s/^# \{0,1\}//p' "$0"; }

# setting NAME: a setting of Makefile.inc, as CMake sees it: -D of the build tree, else the environment, else the file.
# If that is `auto`, what CMake found.
setting() {
  local value
  value=$(stated_setting "$1")
  if [[ $value == auto ]]; then sed -n "s/^$1 = //p" "$build/lockstep.mk"; else printf '%s' "$value"; fi
}

stated_setting() {
  local cached
  if cached=$(grep -m1 "^$1:[A-Z]*=" "$build/CMakeCache.txt" 2>/dev/null); then
    printf '%s' "${cached#*=}"
  elif [[ -n ${!1:-} ]]; then
    printf '%s' "${!1}"
  else
    sed -n "s/^$1 *?= *//p" "$root/Makefile.inc"
  fi
}

# cpu_quota: processors that the control groups of this process allow, rounded down; nothing without a limit.
cpu_quota() {
  local names group folder limit period least=
  while IFS=: read -r _ names group; do
    [[ -z $names || ,$names, == *,cpu,* ]] || continue
    while true; do
      folder=/sys/fs/cgroup${names:+/cpu}$group limit=max
      if [[ -r $folder/cpu.max ]]; then
        read -r limit period <"$folder/cpu.max"
      elif [[ -r $folder/cpu.cfs_quota_us ]]; then
        limit=$(<"$folder/cpu.cfs_quota_us") period=$(<"$folder/cpu.cfs_period_us")
      fi
      if [[ $limit =~ ^[1-9][0-9]*$ ]] && ((limit / period < ${least:-limit})); then least=$((limit / period)); fi
      [[ -n $group ]] || break
      group=${group%/*}
    done
  done </proc/self/cgroup
  printf '%s' "$least"
}

# cores: how many this process may use. (nproc alone would answer OMP_NUM_THREADS where that is set.)
cores() {
  local processors quota
  processors=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
  quota=$(cpu_quota)
  ((${quota:-processors} < processors)) || quota=$processors
  echo $((quota > 0 ? quota : 1))
}

# compile_jobs: one per core, as long as each has 2 GB of memory.
compile_jobs() {
  local jobs by_memory
  jobs=$(cores)
  by_memory=$(awk '/^MemAvailable/ { print int($2 / 2000000) }' /proc/meminfo)
  ((by_memory >= jobs)) || jobs=$by_memory
  echo $((jobs > 0 ? jobs : 1))
}

# show MESSAGE: progress on a terminal, where each message replaces the last one; elsewhere a line every 10 seconds.
shown_at=$SECONDS
show() {
  if [[ -t 2 ]]; then
    printf '\r\033[K%s: %.100s' "$me" "$1" >&2
  elif ((SECONDS - shown_at >= 10)); then
    say "$1"
    shown_at=$SECONDS
  fi
}
show_done() { [[ ! -t 2 ]] || printf '\r\033[K' >&2; }

# log_and_show FILE REGEX: copies stdin to FILE and shows the lines that match.
log_and_show() {
  local line
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$1"
    [[ ! $line =~ $2 ]] || show "$line"
  done
  show_done
}

# build_targets TARGET...: configures if need be and builds. Everything goes to build/build.log, and one line of
# progress to stderr. When a compiler fails, its output is all that is printed.
build_targets() {
  mkdir -p "$build"
  (
    flock -n 8 || { say "waiting for another build of this clone" && flock 8; }
    started=$SECONDS
    : >"$build_log"
    configure
    if ! cmake --build "$build" -j "$(compile_jobs)" --target "$@" 2>&1 | show_build "$(count_compilations "$@")"; then
      print_compiler_output >&2
      exit 1
    fi
    ((SECONDS - started < 5)) || say "built in $((SECONDS - started)) s"
  ) 8>"$build/.lock"
}

# count_compilations TARGET...: how many units the build is going to compile. (Where CMake has to run again, it runs
# before; if it fails, the build says so.)
count_compilations() {
  ninja -C "$build" build.ninja >/dev/null 2>&1 || true
  ninja -C "$build" -n "$@" 2>/dev/null | grep -c '^\[.*\] Building' || true
}

# show_build COMPILATIONS: copies ninja's output to the log. Shows what is being built, how far it is and about how long
# it will take, given that compiling takes nearly all the time.
show_build() {
  local line total=$1 compiled=0 began=$SECONDS left
  while IFS= read -r line; do
    printf '%s\n' "$line" >>"$build_log"
    [[ $line =~ ^\[[0-9]+/[0-9]+\]\ (Building|Linking)[^/]*\ ([^ ]+)$ ]] || continue
    [[ ${BASH_REMATCH[1]} == Linking ]] || compiled=$((compiled + 1))
    left=
    if ((compiled > 2 && total > compiled)); then
      left=", about $(duration $(((SECONDS - began) * (total - compiled) / compiled))) left"
    fi
    show "built $compiled of $total units$left: $(unit_name "${BASH_REMATCH[2]}")"
  done
  show_done
}

# unit_name OUTPUT: src/engine/CMakeFiles/lockstep_engine.dir/Unity/unity_hooks_cxx.cxx.o is "src/engine hooks".
unit_name() {
  sed -E 's|/?CMakeFiles/[^/]*\.dir/| |; s|Unity/unity_||; s|(_cxx\.cxx\|\.cpp)\.o$||; s|^ ||' <<<"$1"
}

# duration SECONDS: as 0:05 or 2:40.
duration() { printf '%d:%02d' $(($1 / 60)) $(($1 % 60)); }

# print_compiler_output: what the failed commands of the log printed, without the commands; else the end of the log.
print_compiler_output() {
  if grep -q '^FAILED: ' "$build_log"; then
    awk '/^FAILED: / { getline; prints = 1; next } /^\[[0-9]+\/[0-9]+\] |^ninja: / { prints = 0 } prints' "$build_log"
  else
    tail -n 30 "$build_log"
  fi
}

# configure: runs cmake in a fresh tree, and when a setting in the environment or the list of files differs from the
# last time. (Edited files, Makefile.inc among them, make the build itself run it.)
configure() {
  local name settings fresh=()
  settings=$(for name in $(sed -n 's/^\(LOCKSTEP_[A-Z_]*\) *?=.*/\1/p' "$root/Makefile.inc") LOCKSTEP_DEPS; do
    echo "$name=${!name:-}"
  done
  cd "$root" && find src mpi checkpoints -name '*.cpp' | LC_ALL=C sort) # a module consists of the files in its folder
  if [[ -e $build/.settings && $(<"$build/.settings") == "$settings" ]] &&
    grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt" 2>/dev/null; then
    return
  fi
  if [[ ! -e $build/CMakeCache.txt ]]; then
    fresh=(-G Ninja)
  elif ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$build/CMakeCache.txt"; then
    fresh=(--fresh -G Ninja) # the clone was moved or copied
  fi
  show "configuring"
  if ! cmake "${fresh[@]}" "${cmake_options[@]}" -S "$root" -B "$build" >>"$build_log" 2>&1; then
    show_done
    tail -n 30 "$build_log" >&2
    die 1 "cmake failed, see build/build.log"
  fi
  printf '%s\n' "$settings" >"$build/.settings"
}

# shellcheck source=tools/open_mpi.sh
source "$root/tools/open_mpi.sh"
