// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/heal/job_hosts.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

/// The place of the value of an option, of which one of two names is given; the end = it is not there.
std::vector<std::string>::const_iterator value_of(const std::vector<std::string>& words, const std::string& name,
                                                  const std::string& other) {
  const auto found =
      std::ranges::find_if(words, [&](const std::string& word) { return word == name || word == other; });
  return found == words.end() || found + 1 == words.end() ? words.end() : found + 1;
}

}  // namespace

std::vector<JobHost> hosts_in(const std::vector<std::string>& launcher) {
  const auto list = value_of(launcher, "--host", "-H");
  if (list == launcher.end()) return {};
  std::vector<JobHost> hosts;
  for (const std::string& entry : split_list(*list, ',')) {
    const std::size_t colon = entry.find(':');
    const auto slots = colon == std::string::npos ? std::nullopt : parse_integer(entry.substr(colon + 1));
    hosts.push_back({.name = entry.substr(0, colon), .slots = static_cast<int>(slots.value_or(1))});
  }
  return hosts;
}

std::vector<std::string> on_hosts(std::vector<std::string> launcher, const std::vector<JobHost>& hosts) {
  std::string list;
  std::int64_t slots = 0;
  for (const JobHost& host : hosts) {
    list += (list.empty() ? "" : ",") + host.name + ":" + std::to_string(host.slots);
    slots += host.slots;
  }
  const auto place_of = [&launcher](const std::string& name, const std::string& other) {
    return launcher.begin() + (value_of(launcher, name, other) - launcher.cbegin());
  };
  if (const auto place = place_of("--host", "-H"); place != launcher.end()) *place = list;
  if (const auto place = place_of("-np", "-n"); place != launcher.end()) {
    const std::int64_t ranks = parse_integer(*place).value_or(slots);
    *place = std::to_string(std::min(ranks, slots));
  }
  return launcher;
}

std::vector<std::string> probe_of(const std::vector<std::string>& launcher, const JobHost& host) {
  std::vector<std::string> words = on_hosts(launcher, {{.name = host.name, .slots = 1}});
  const auto ranks = value_of(words, "-np", "-n");
  if (ranks != words.end()) words.erase(ranks + 1, words.end());
  words.emplace_back("true");
  return words;
}

std::string host_that_failed(const std::string& line) {
  // "mpirun noticed that process rank 1 with PID 17 on node b exited on signal 9 (Killed)."
  constexpr std::string_view kBefore = " on node ";
  const std::size_t begin = line.find(kBefore);
  const std::size_t end = line.find(" exited on signal ");
  const bool is_told = line.find("noticed that process rank ") < begin && begin < end && end != std::string::npos;
  return is_told ? line.substr(begin + kBefore.size(), end - begin - kBefore.size()) : "";
}

std::vector<JobHost> reliable(const std::vector<JobHost>& hosts, const std::map<std::string, int>& failures) {
  std::vector<JobHost> chosen;
  std::ranges::copy_if(hosts, std::back_inserter(chosen), [&failures](const JobHost& host) {
    const auto count = failures.find(host.name);
    return count == failures.end() || count->second < 2;
  });
  return chosen.empty() ? hosts : chosen;
}

}  // namespace lockstep::trainer
