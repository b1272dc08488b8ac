// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/options.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "core/text/parse_value.hpp"
#include "core/text/text.hpp"

namespace lockstep::trainer {

namespace {

constexpr double kMaxRanks = 1e6;
constexpr double kLinkGbit = 10;
constexpr double kLatencyUs = 20;  // TCP over Ethernet

int count_in(const CommandOptions& options, const std::string& name, int fallback) {
  const double value = number_in(options, name, fallback, 1, kMaxRanks);
  if (value == std::floor(value)) return static_cast<int>(value);
  throw ConfigError("command line: --" + name + ": '" + options.at(name) + "' is not an integer");
}

}  // namespace

double number_in(const CommandOptions& options, const std::string& name, double fallback, double min, double max) {
  const auto found = options.find(name);
  if (found == options.end()) return fallback;
  const auto value = parse_real(found->second);
  if (value && *value >= min && *value <= max) return *value;
  throw ConfigError("command line: --" + name + ": '" + found->second + "' is not a number from " + number_text(min) +
                    " to " + number_text(max));
}

engine::JobShape shape_in(const CommandOptions& options, const engine::JobShape& here) {
  const int ranks = count_in(options, "ranks", here.ranks);
  const int here_per_host = (here.ranks + here.hosts - 1) / here.hosts;
  const int hosts = count_in(options, "hosts", std::max(1, (ranks + here_per_host - 1) / here_per_host));
  if (hosts <= ranks) return {.ranks = ranks, .hosts = hosts};
  throw ConfigError("command line: --hosts: " + std::to_string(ranks) + " ranks cannot run on " +
                    std::to_string(hosts) + " hosts; each host has at least one rank");
}

LinkSpeed link_in(const CommandOptions& options) {
  return {.latency_s = number_in(options, "latency-us", kLatencyUs, 0, 1e6) / 1e6,
          .bytes_per_s = number_in(options, "link-gbit", kLinkGbit, 1e-3, 1e6) * 1e9 / 8};
}

std::optional<FailureSettings> failures_in(const CommandOptions& options, std::optional<double> save_s) {
  if (!options.contains("mtbf-hours")) {
    for (const std::string name : {"save-s", "restart-s"}) {
      if (options.contains(name)) throw ConfigError("command line: --" + name + " requires --mtbf-hours");
    }
    return std::nullopt;
  }
  if (!options.contains("save-s") && !save_s) {
    throw ConfigError(
        "command line: --mtbf-hours: the time of a save is unknown, because no file can be written to run.dir; set "
        "--save-s");
  }
  return FailureSettings{.mtbf_hours = number_in(options, "mtbf-hours", 0, 1e-3, 1e9),
                         .save_s = number_in(options, "save-s", save_s.value_or(0), 1e-6, 1e6),
                         .restart_s = number_in(options, "restart-s", FailureSettings{}.restart_s, 0, 1e6)};
}

}  // namespace lockstep::trainer
