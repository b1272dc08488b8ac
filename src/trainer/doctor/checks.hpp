// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trainer/doctor/findings.hpp"

// The checks of the doctor: pure functions of the facts, a file per subject.
namespace lockstep::trainer {

/// The facts that the checks read.
struct Patient {
  const std::vector<DoctorFacts>& ranks;
  const JobFacts& job;
  std::string folder;
  std::map<std::string, std::vector<std::size_t>> ranks_of_host = {};

  bool has_several_hosts() const { return ranks_of_host.size() > 1; }
};

/// Findings without their subject.
using Findings = std::vector<Finding>;

inline Finding fine(std::string evidence) {
  return {.subject = "", .verdict = Verdict::fine, .evidence = std::move(evidence)};
}
inline Finding warning(std::string evidence, std::string remedy) {
  return {.subject = "", .verdict = Verdict::warning, .evidence = std::move(evidence), .remedy = std::move(remedy)};
}
inline Finding fault(std::string evidence, std::string remedy) {
  return {.subject = "", .verdict = Verdict::fault, .evidence = std::move(evidence), .remedy = std::move(remedy)};
}

/// "rank 3 on b".
std::string rank_on_host(const Patient& patient, std::size_t rank);
double median_of_ranks(std::vector<double> values);
/// The first rank with another text than rank 0.
std::optional<std::size_t> first_other(const Patient& patient,
                                       const std::function<std::string(const DoctorFacts&)>& text);

Findings check_launch(const Patient& patient);
Findings check_config(const Patient& patient);
Findings check_processors(const Patient& patient);
Findings check_memory(const Patient& patient);
Findings check_network(const Patient& patient);
Findings check_files(const Patient& patient);
Findings check_slurm(const Patient& patient);
Findings check_gpus(const Patient& patient);
Findings check_libtorch(const Patient& patient);

}  // namespace lockstep::trainer
