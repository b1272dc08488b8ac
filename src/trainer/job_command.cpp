// SPDX-License-Identifier: BSD-3-Clause

#include <nlohmann/json.hpp>

#include <fstream>

#include "core/text/duration.hpp"
#include "engine/settings/agreed.hpp"
#include "mpi/process/topology.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/plan/job_script.hpp"
#include "trainer/plan/options.hpp"

namespace lockstep::trainer {

namespace {

constexpr double kMemoryReserve = 1.25;  // libraries grow, and files are cached
constexpr double kTimeReserve = 1.1;     // evaluations and saves take time, too
constexpr double kStartSeconds = 600;

/// The numbers of a plan that `trainer plan --json` has printed.
/// @throws ConfigError  the file is not such a plan, or has no predicted part
JobScript script_of_plan(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw ConfigError("command line: --plan: " + path + " cannot be read");
  const nlohmann::json plan = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (plan.is_discarded()) throw ConfigError("command line: --plan: " + path + " is not JSON");
  try {
    const nlohmann::json& measured = plan.at("measured");
    const nlohmann::json& predicted = plan.at("predicted");
    const double memory = plan.at("computed").at("ranks").at(0).at("memory_bytes").at("per_rank").get<double>() +
                          measured.at("activation_bytes").get<double>() + measured.at("process_bytes").get<double>();
    return {.ranks = plan.at("ranks").get<int>(),
            .hosts = plan.at("hosts").get<int>(),
            .time_s = kTimeReserve * predicted.at("run_high_s").get<double>() + kStartSeconds,
            .save_s = predicted.value("save_s", 0.0),
            .memory_bytes = kMemoryReserve * memory};
  } catch (const nlohmann::json::exception&) {
    throw ConfigError("command line: --plan: " + path +
                      " is not the output of `trainer plan --json` with measurements");
  }
}

/// The arguments of the command line that configure the run.
std::vector<std::string> arguments_of(const config::Invocation& invocation) {
  std::vector<std::string> arguments;
  for (const std::string& file : invocation.files) arguments.push_back("--config=" + file);
  for (const KeySpec& spec : invocation.config.specs()) {
    const KeyValue& value = invocation.config.value(spec.name);
    if (value.origin != "command line") continue;
    for (const std::string& text : value.texts) arguments.push_back("--" + spec.name + "=" + text);
  }
  return arguments;
}

JobScript script_in(const config::Invocation& invocation, const engine::JobShape& here) {
  const CommandOptions& options = invocation.options;
  if (!options.contains("slurm")) throw ConfigError("command line: job needs --slurm, the only batch system it knows");
  const auto plan = options.find("plan");
  JobScript script;
  script.ranks = here.ranks;
  script.hosts = here.hosts;
  if (plan != options.end()) script = script_of_plan(plan->second);
  const engine::JobShape shape = shape_in(options, {.ranks = script.ranks, .hosts = script.hosts});
  const bool is_other = shape.ranks != script.ranks || shape.hosts != script.hosts;
  if (plan != options.end() && is_other) {
    throw ConfigError("command line: --ranks and --hosts contradict --plan, which is for " +
                      std::to_string(script.ranks) + " ranks on " + std::to_string(script.hosts) + " hosts");
  }
  script.ranks = shape.ranks;
  script.hosts = shape.hosts;
  const auto threads =
      static_cast<double>(std::max<std::int64_t>(1, invocation.config.section("run").integer("threads")));
  script.cpus = static_cast<int>(number_in(options, "cpus", threads, 1, 4096));
  if (const auto time = options.find("time"); time != options.end()) {
    const auto seconds = parse_duration(time->second);
    if (!seconds || *seconds <= 0) {
      throw ConfigError("command line: --time: '" + time->second +
                        "' is not a duration; use seconds, H:MM:SS, or D-HH:MM:SS");
    }
    script.time_s = *seconds;
  }
  script.arguments = arguments_of(invocation);
  return script;
}

}  // namespace

ExitCode write_job(const CommandJob& job, const config::Invocation& invocation) {
  const mpi::Topology topology = mpi::Topology::of(job.world);
  const JobScript script = engine::agreed(
      job.world, [&] { return script_in(invocation, {.ranks = job.world.size(), .hosts = topology.host_count}); });
  std::string text = slurm_script(script);
  text.erase(text.find_last_not_of('\n') + 1);
  print_result(job.world, text);
  return ExitCode::done;
}

}  // namespace lockstep::trainer
