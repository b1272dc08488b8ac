// SPDX-License-Identifier: BSD-3-Clause

#include "core/text/duration.hpp"
#include "engine/settings/agreed.hpp"
#include "engine/settings/train_settings.hpp"
#include "mpi/process/launch.hpp"
#include "mpi/process/topology.hpp"
#include "trainer/commands/commands.hpp"
#include "trainer/commands/derived_keys.hpp"
#include "trainer/plan/options.hpp"
#include "trainer/plan/page.hpp"
#include "trainer/run_folder_name.hpp"

namespace lockstep::trainer {

namespace {

/// Seconds until train.time_limit or Slurm ends a run; 0 = unlimited. Collective.
double limit_of(const mpi::Communicator& world, const Section& train) {
  double limit = 0;
  world.all_or_throw([&] { limit = engine::time_limit_of(train).value_or(0); });
  if (limit == 0 && world.is_root()) {
    if (const auto job = mpi::slurm_job()) limit = mpi::seconds_left(*job).value_or(0);
  }
  world.broadcast(std::span<double>(&limit, 1));
  return limit;
}

/// Everything that a plan is made of, before it is computed.
struct PlanRequest {
  engine::JobShape shape = {};
  MeasureOptions measuring = {};
  bool is_measured = true;
};

PlanRequest request_in(const CommandOptions& options, const engine::JobShape& here) {
  PlanRequest request{.shape = shape_in(options, here), .is_measured = !options.contains("computed")};
  request.measuring.between = link_in(options);
  request.measuring.seconds = number_in(options, "measure-s", MeasureOptions{}.seconds, 0.01, 600);
  for (const std::string name : {"link-gbit", "latency-us", "measure-s", "mtbf-hours"}) {
    if (request.is_measured || !options.contains(name)) continue;
    throw ConfigError("command line: --" + name + " has no effect with --computed");
  }
  return request;
}

}  // namespace

ExitCode plan_job(const CommandJob& job, const config::Invocation& invocation) {
  const mpi::Communicator& world = job.world;
  config::Config config = invocation.config;
  settle_teacher(job, config);
  const Sections& sections = config.sections();
  const mpi::Topology topology = mpi::Topology::of(world, static_cast<int>(sections.at("comm").integer("hosts")));
  PlanRequest request = engine::agreed(
      world, [&] { return request_in(invocation.options, {.ranks = world.size(), .hosts = topology.host_count}); });
  request.measuring.folder = run_folder_name(world, sections.at("run")).dir;

  const SteadyClock::time_point start = SteadyClock::now();
  PlanPage page;
  engine::agreed(world, [&] {
    page.workload = engine::workload_of(sections, job.registry);
    page.plan = engine::plan_job(page.workload, request.shape, engine::last_cache_bytes());
    return 0;
  });
  page.planning_s = seconds_since(start);
  if (request.is_measured) {
    if (invocation.config.section("log").is_default("level")) {
      log::configure({.rank = world.rank(), .world_size = world.size(), .console_level = log::Level::warning});
    }
    page.here = measure_here(world, sections, job.registry, page.workload, page.plan, request.measuring);
    const double limit = limit_of(world, sections.at("train"));
    const SteadyClock::time_point again = SteadyClock::now();
    page.predicted = predict_run(page.workload, page.plan, *page.here);
    if (limit > 0) page.predicted->limit_s = limit;
    const auto failures =
        engine::agreed(world, [&] { return failures_in(invocation.options, page.predicted->save_s); });
    if (failures) {
      page.failure_settings = *failures;
      page.failures = plan_failures(*failures, page.plan.shape.hosts, page.predicted->run_s());
    }
    page.planning_s += seconds_since(again);
  }
  print_result(world, invocation.options.contains("json") ? json_of(page) : text_of(page));
  return ExitCode::done;
}

}  // namespace lockstep::trainer
