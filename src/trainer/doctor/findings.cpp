// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/doctor/findings.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>

#include "core/text/text.hpp"
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

struct CheckRow {
  const char* subject;
  Findings (*run)(const Patient&);
};

constexpr CheckRow kChecks[] = {{"launch", check_launch}, {"config", check_config},   {"processor", check_processors},
                                {"memory", check_memory}, {"network", check_network}, {"files", check_files},
                                {"slurm", check_slurm},   {"gpu", check_gpus},        {"libtorch", check_libtorch}};

}  // namespace

std::string rank_on_host(const Patient& patient, std::size_t rank) {
  return "rank " + std::to_string(rank) + " on " + patient.ranks[rank].host;
}

double median_of_ranks(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::optional<std::size_t> first_other(const Patient& patient,
                                       const std::function<std::string(const DoctorFacts&)>& text) {
  for (std::size_t rank = 1; rank < patient.ranks.size(); ++rank) {
    if (text(patient.ranks[rank]) != text(patient.ranks.front())) return rank;
  }
  return std::nullopt;
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fine:
      return "ok";
    case Verdict::warning:
      return "warning";
    default:
      return "fault";
  }
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<9} {:<10} {}\n", name_of(finding.verdict), finding.subject, finding.evidence);
    if (!finding.remedy.empty()) text += fmt::format("{:<20} do: {}\n", "", finding.remedy);
  }
  const auto count = [&](Verdict verdict) { return std::ranges::count(findings, verdict, &Finding::verdict); };
  return text + fmt::format("{} faults, {} warnings", count(Verdict::fault), count(Verdict::warning));
}

std::string json_of(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& finding : findings) {
    all.push_back({{"subject", finding.subject},
                   {"verdict", name_of(finding.verdict)},
                   {"evidence", finding.evidence},
                   {"remedy", finding.remedy}});
  }
  return all.dump(2);
}

JobFacts job_facts_in(const std::string& line) {
  JobFacts facts;
  for (const std::string& word : words_in(line, ' ')) {
    const std::size_t equals = word.find('=');
    if (equals != std::string::npos) facts.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return facts;
}

std::vector<Finding> findings_about(const std::vector<DoctorFacts>& ranks, const JobFacts& job,
                                    const std::string& folder) {
  Patient patient{.ranks = ranks, .job = job, .folder = folder};
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) patient.ranks_of_host[ranks[rank].host].push_back(rank);
  std::vector<Finding> all;
  for (const CheckRow& check : kChecks) {
    for (Finding& finding : check.run(patient)) {
      finding.subject = check.subject;
      all.push_back(std::move(finding));
    }
  }
  return all;
}

}  // namespace lockstep::trainer
