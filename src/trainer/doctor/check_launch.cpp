// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <set>

#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

void check_versions(const Patient& patient, Findings& found) {
  for (const auto& [name, value] : patient.ranks.front().versions) {
    const auto version = [&name = name](const DoctorFacts& rank) {
      const auto entry = rank.versions.find(name);
      return entry == rank.versions.end() ? std::string("none") : entry->second;
    };
    const auto other = first_other(patient, version);
    if (!other) continue;
    const bool is_program = name == "program";
    found.push_back(fault(is_program ? rank_on_host(patient, *other) + " runs another program file than rank 0"
                                     : name + " is '" + value + "' on rank 0, but '" + version(patient.ranks[*other]) +
                                           "' on " + rank_on_host(patient, *other),
                          "install the same build on all hosts, and start it by the same path"));
  }
}

void check_variables(const Patient& patient, Findings& found) {
  std::set<std::string> names;
  for (const DoctorFacts& rank : patient.ranks) {
    for (const auto& [name, value] : rank.variables) names.insert(name);
  }
  for (const std::string& name : names) {
    const auto value = [&name](const DoctorFacts& rank) {
      const auto entry = rank.variables.find(name);
      return entry == rank.variables.end() ? std::string("not set") : entry->second;
    };
    if (const auto other = first_other(patient, value)) {
      found.push_back(warning("the variable " + name + " is " + value(patient.ranks.front()) + " on rank 0, but " +
                                  value(patient.ranks[*other]) + " on " + rank_on_host(patient, *other),
                              "mpirun -x " + name + " gives it to all ranks"));
    }
  }
}

}  // namespace

Findings check_launch(const Patient& patient) {
  Findings found;
  const int launched = patient.ranks.front().launched;
  if (launched > static_cast<int>(patient.ranks.size())) {
    found.push_back(
        fault("the launcher started " + std::to_string(launched) + " ranks, but MPI sees " +
                  std::to_string(patient.ranks.size()) + ": it belongs to another MPI library than this program (" +
                  patient.ranks.front().versions.at("MPI") + ")",
              "start with the mpirun of that library, or with tools/train; a container needs the same MPI as "
              "the host"));
  }
  check_versions(patient, found);
  check_variables(patient, found);
  if (found.empty()) {
    found.push_back(
        fine(fmt::format("{} {} on {} {}, with the same program, libraries and variables", patient.ranks.size(),
                         patient.ranks.size() == 1 ? "rank" : "ranks", patient.ranks_of_host.size(),
                         patient.ranks_of_host.size() == 1 ? "host" : "hosts")));
  }
  return found;
}

}  // namespace lockstep::trainer
