// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "core/text/text.hpp"
#include "trainer/doctor/checks.hpp"

namespace lockstep::trainer {

namespace {

bool is_virtual(const std::string& interface) {
  static constexpr const char* kPrefixes[] = {"docker", "virbr", "br-", "veth", "cni", "podman", "lxc"};
  return std::ranges::any_of(kPrefixes, [&](const char* prefix) { return interface.starts_with(prefix); });
}

/// The slowest of the bus bandwidths.
std::string bus_text(const std::vector<double>& buses) {
  if (buses.empty()) return "";
  return fmt::format("; the bus bandwidth of all_reduce is {:.3g} GB/s", *std::ranges::min_element(buses));
}

}  // namespace

Findings check_network(const Patient& patient) {
  Findings found;
  if (patient.ranks.size() == 1) return {fine("one rank needs none")};
  std::vector<std::string> real;
  std::vector<std::string> imagined;
  for (const std::string& name : patient.ranks.front().interfaces) (is_virtual(name) ? imagined : real).push_back(name);
  const auto& variables = patient.ranks.front().variables;
  const bool is_chosen = variables.contains("OMPI_MCA_btl_tcp_if_include") ||  //
                         variables.contains("OMPI_MCA_btl_tcp_if_exclude");
  if (patient.has_several_hosts() && !is_chosen && !imagined.empty() && !real.empty()) {
    found.push_back(warning("MPI may try " + joined(imagined) + ", which lead to no other host",
                            "mpirun --mca btl_tcp_if_include " + joined(real, ",")));
  }
  for (const bool is_near : {true, false}) {
    std::vector<double> latencies;
    std::vector<double> speeds;
    std::vector<double> buses;
    for (const DoctorFacts& rank : patient.ranks) {
      const double bus = is_near ? rank.inside_gbs : rank.between_gbs;
      if (bus > 0) buses.push_back(bus);
      if (rank.latency_us == 0 || (rank.host == patient.ranks.front().host) != is_near) continue;
      latencies.push_back(rank.latency_us);
      speeds.push_back(rank.message_gbs);
    }
    if (latencies.empty()) continue;
    found.push_back(fine(fmt::format("messages {} take {:.3g} us and have {:.3g} GB/s (medians){}",
                                     is_near ? "inside a host" : "between hosts", median_of_ranks(latencies),
                                     median_of_ranks(speeds), bus_text(buses))));
  }
  return found;
}

}  // namespace lockstep::trainer
