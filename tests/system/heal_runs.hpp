// SPDX-License-Identifier: BSD-3-Clause
// Supervised runs to which something happens, on one host and on two.
#pragma once

#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/program.hpp"

namespace lockstep::testing {

constexpr int kNoTwoHosts = 77;  // exit code of two_hosts.sh where hosts are not permitted

/// A run under `trainer heal` that a shell script disturbs.
struct DisturbedRun {
  std::string folder;  ///< run.dir
  std::string words;   ///< the program and its arguments, without run.dir
  std::string flags;   ///< options of mpirun
  /// A script of the shell that disturbs it. $heal is the process of the supervisor, and there are these functions:
  /// `ranks` prints the numbers of the run's processes in the order of ranks, `launchers` those of mpirun;
  /// `await_step N` waits until metrics.jsonl has that many lines, `await_recovery` until it has a recovery.
  std::string script;
};

/// The shell functions of DisturbedRun.
inline std::string functions_of(const DisturbedRun& run) {
  return "metrics=" + run.folder + "/metrics.jsonl; run_dir=--run.dir=" + run.folder + R"sh(
is_of_run() { tr '\0' ' ' 2>/dev/null </proc/$1/cmdline | grep -q -e "$run_dir"; }
launchers() { for p in $(pgrep -x mpirun); do is_of_run $p && echo $p; done; }
ranks() {
  for p in $(pgrep -x 'trainer|failing_program'); do
    is_of_run $p || continue
    r=$(tr '\0' '\n' 2>/dev/null </proc/$p/environ | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
    [ -n "$r" ] && echo "$r $p"
  done | sort -n | cut -d' ' -f2
}
await_step() {
  for i in $(seq 4000); do
    [ "$(wc -l 2>/dev/null <$metrics)" -ge $1 ] 2>/dev/null && return
    kill -0 $heal 2>/dev/null || return
    sleep 0.005
  done
}
await_recovery() { for i in $(seq 4000); do grep -qs heal/rung $metrics && return; sleep 0.005; done; }
)sh";
}

inline std::string with_script(const DisturbedRun& run, const std::string& command) {
  return functions_of(run) + command + " --run.dir=" + run.folder + " & heal=$!\n" + run.script + "\nwait $heal";
}

/// The shell command of a run on one host.
inline std::string on_one_host(int ranks, const DisturbedRun& run) {
  const std::string mpirun = mpirun_command(ranks);
  const std::size_t space = mpirun.find(' ');
  return with_script(run, trainer_program() + " heal " + mpirun.substr(0, space) + " " + run.flags +
                              mpirun.substr(space) + " " + run.words);
}

/// The shell command of a run on two hosts of this machine, nodea and nodeb, with so many ranks on each. The supervisor
/// is on the first one. Exit code kNoTwoHosts: not permitted here.
/// @param folder  of the hosts
inline std::string on_two_hosts(int ranks, const std::string& folder, const DisturbedRun& run) {
  const char* const source = std::getenv("LOCKSTEP_SOURCE_DIR");
  return with_script(run, "TWO_HOSTS_SUPERVISOR=" + trainer_program() + "' heal' " +
                              (source != nullptr ? source : ".") + "/tests/system/two_hosts.sh '" + folder + "' " +
                              std::to_string(ranks) + " " + run.flags + run.words + " --ckpt.partner=true");
}

/// Shell words that end everything on the second host of `on_two_hosts`, and keep it from being reached.
inline std::string remove_second_host(const std::string& folder) {
  return "net=$(grep ^net: '" + folder + R"sh(/namespaces' | tail -1)
for p in /proc/[0-9]*; do
  [ "$(readlink $p/ns/net)" = "$net" ] && ! grep -q sleep $p/comm && kill -9 ${p#/proc/}
done 2>/dev/null
rm -f ')sh" +
         folder + "/nodeb.pid'";
}

/// The values of a name in metrics.jsonl.
inline std::vector<double> values_in(const std::string& folder, const std::string& name) {
  std::vector<double> values;
  std::istringstream lines(read_file(folder + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t place = line.find("\"" + name + "\"");
    if (place != std::string::npos) values.push_back(std::stod(line.substr(line.find(':', place) + 1)));
  }
  return values;
}

/// A number that differs in each run of the long form, and is drawn from the seed in the short one.
inline int drawn_between(int lowest, int highest) {
  static std::mt19937_64 draws(is_long_run() ? std::random_device()() : test_seed());
  return std::uniform_int_distribution(lowest, highest)(draws);
}

}  // namespace lockstep::testing
