// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/doctor/facts.hpp"

namespace lockstep::trainer {

enum class Verdict { fine, warning, fault };

std::string_view name_of(Verdict verdict);

/// The result of one check.
struct Finding {
  std::string subject;  ///< such as "processor"
  Verdict verdict = Verdict::fine;
  std::string evidence;     ///< one sentence
  std::string remedy = {};  ///< a command or a setting; "" for what is fine
};

/// The facts about the batch job, from `scontrol show job -o`; empty outside of slurm.
using JobFacts = std::map<std::string, std::string>;
JobFacts job_facts_in(const std::string& line);

/// The findings about a job, by subject in the order of the documentation.
/// @param ranks   facts of each rank
/// @param folder  run.dir; "" = files were not tried
std::vector<Finding> findings_about(const std::vector<DoctorFacts>& ranks, const JobFacts& job,
                                    const std::string& folder);

/// A line for each finding, with the remedy below it, and the numbers of faults and warnings.
std::string text_of(const std::vector<Finding>& findings);
/// A list of objects with the members of Finding.
std::string json_of(const std::vector<Finding>& findings);

}  // namespace lockstep::trainer
