// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/measurement.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>

#include "checkpoints/disk/disk.hpp"
#include "core/system/resources.hpp"
#include "core/text/duration.hpp"
#include "data/source/settings.hpp"
#include "engine/rehearsal.hpp"
#include "mpi/process/topology.hpp"
#include "trainer/doctor/measure.hpp"

namespace lockstep::trainer {

namespace {

namespace fs = std::filesystem;

constexpr double kMaxSavedBytes = 64e6;
constexpr int kNetworkRounds = 3;  // the best counts: other work on the machine delays messages
constexpr int kRounds = 2;  // ranks alone and together are measured in turn, because the load of a machine changes

/// Waits for all ranks without using a processor, because others are measured.
void meet_quietly(const mpi::Communicator& world) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Ibarrier(world.handle(), &request), "MPI_Ibarrier");
  int is_over = 0;
  for (;;) {
    mpi::check(MPI_Test(&request, &is_over, MPI_STATUS_IGNORE), "MPI_Test");
    if (is_over != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string number(std::int64_t value) { return std::to_string(value); }

/// The configuration of ranks that have as many samples each as the first rank of the plan.
/// @param together  ranks that train together; none = a rank trains alone, without communication
/// @param on_host   ranks of this host that share its processors
Sections sections_for(const Sections& sections, const engine::PlannedRank& rank, std::optional<int> together,
                      int on_host, int host_cpus) {
  const std::string origin = "plan";
  Sections changed = sections;
  Section& train = changed.at("train");
  train.set("global_batch_size", number(rank.samples * together.value_or(1)), origin);
  const bool has_lanes = train.integer("lanes") > 0;
  if (has_lanes) train.set("lanes", number(rank.micro_batches * together.value_or(1)), origin);
  const int cpus = std::max(1, host_cpus / on_host);
  Section& run = changed.at("run");
  if (run.integer("threads") == 0 && !has_lanes && std::getenv("OMP_NUM_THREADS") == nullptr) {
    run.set("threads", number(cpus), origin);
  }
  Section& data = changed.at("data");
  if (!data::DataSettings::from(data).workers) data.set("workers", number(data::auto_workers(cpus)), origin);
  if (together) return changed;
  changed.at("strategy").set("name", "single", origin);
  changed.at("strategy").set("post_local", "", origin);
  changed.at("comm").set("backend", "auto", origin);
  changed.at("comm").set("hosts", "0", origin);
  changed.at("ddp").set("comm_hook", "none", origin);
  changed.at("ddp").set("sync_batch_norm", "false", origin);
  return changed;
}

double section_of(const engine::Rehearsal& rehearsal, const char* name) {
  for (const auto& [section, seconds] : rehearsal.sections) {
    if (section == name) return seconds;
  }
  return 0;
}

/// The moments at which buckets were ready, as fractions of the time until the end of backward. Empty = buckets are
/// reduced after backward.
ReadyFractions overlap_in(const parallel::DdpReport& report) {
  if (report.steps == 0 || report.ranks.empty()) return {};
  const parallel::StepTimeline& step = report.ranks[slowest_rank(report)];
  const auto is_early = [&](const parallel::BucketTimes& bucket) {
    return bucket.visit_end > bucket.visit_begin && bucket.visit_end < step.backward_end;
  };
  if (step.backward_end <= 0 || std::ranges::none_of(step.buckets, is_early)) return {};
  ReadyFractions ready;
  for (const parallel::BucketTimes& bucket : step.buckets) {
    ready.push_back(std::clamp(bucket.ready / step.backward_end, 0.0, 1.0));
  }
  return ready;
}

/// Bytes per second of a durable file; 0 = it cannot be written.
double saving_speed(const std::string& folder, double bytes) {
  fs::path place = fs::absolute(folder.empty() ? "." : folder);
  while (!fs::exists(place) && place.has_parent_path() && place != place.parent_path()) place = place.parent_path();
  const std::string path = (place / (".plan-" + std::to_string(getpid()))).string();
  const std::string text(static_cast<std::size_t>(std::clamp(bytes, 1e6, kMaxSavedBytes)), 'x');
  double speed = 0;
  try {
    const SteadyClock::time_point start = SteadyClock::now();
    checkpoints::write_file(path, text);
    speed = static_cast<double>(text.size()) / seconds_since(start);
  } catch (const Error&) {  // the page says that the time of a save is unknown
  }
  std::error_code ignored;
  fs::remove(path, ignored);
  return speed;
}

/// Measures numbers of ranks, one after the other.
class Rehearsals {
 public:
  Rehearsals(const mpi::Communicator& world, const Sections& sections, const engine::Registry& registry,
             const engine::JobPlan& plan, const MeasureOptions& options)
      : world_(world),
        sections_(sections),
        registry_(registry),
        rank_(plan.ranks.front()),
        options_(options),
        topology_(mpi::Topology::of(world, static_cast<int>(sections.at("comm").integer("hosts")))) {}

  void measure(int count, MeasuredHere& here) {
    const bool takes_part = world_.rank() < count;
    const mpi::Communicator alone = world_.split(world_.rank());
    const mpi::Communicator some = world_.split(takes_part ? 0 : 1);
    engine::Rehearsal lone;
    engine::Rehearsal group;
    std::exception_ptr failure;
    try {
      for (int round = 0; takes_part && round < kRounds; ++round) {
        some.barrier();
        extend(lone, rehearse(alone, std::nullopt, count));
        some.barrier();
        extend(group, rehearse(some, count, count));
      }
    } catch (...) {
      failure = std::current_exception();  // the ranks that wait below hear of it
    }
    meet_quietly(world_);
    world_.all_or_throw([&failure] {
      if (failure) std::rethrow_exception(failure);
    });
    add(count, lone, group, here);
  }

 private:
  /// @param together  see sections_for
  engine::Rehearsal rehearse(const mpi::Communicator& ranks, std::optional<int> together, int count) const {
    const int on_host = std::min(count, topology_.local_size);
    return engine::rehearse(ranks, sections_for(sections_, rank_, together, on_host, topology_.host_cpus), registry_,
                            options_.seconds / kRounds);
  }

  /// Adds the steps of a later round, and takes the rest from it.
  static void extend(engine::Rehearsal& all, engine::Rehearsal later) {
    later.step_seconds.insert(later.step_seconds.begin(), all.step_seconds.begin(), all.step_seconds.end());
    all = std::move(later);
  }

  void add(int count, const engine::Rehearsal& lone, const engine::Rehearsal& group, MeasuredHere& here) {
    const auto slowest = [this](double value) { return world_.all_reduce(value, mpi::Op::max); };
    here.lone.push_back({.ranks = count,
                         .step_s = slowest(median_of(lone.step_seconds)),
                         .update_s = slowest(section_of(lone, "optimizer_step")),
                         .spread = slowest(spread_of(lone.step_seconds))});
    std::vector<double> first = {median_of(group.step_seconds), spread_of(group.step_seconds), group.data_seconds,
                                 static_cast<double>(group.activation_bytes)};
    world_.broadcast(std::span<double>(first));
    here.ranks = count;
    here.step_s = first[0];
    here.data_s = first[2];
    here.activation_bytes = static_cast<std::int64_t>(first[3]);
    here.held = group.held;
    here.phases = group.sections;
    add_overlap(group.report, here);
    here.checks.push_back({.ranks = count, .measured_s = first[0], .spread = first[1]});
  }

  void add_overlap(const parallel::DdpReport& report, MeasuredHere& here) {
    std::vector<double> ready = overlap_in(report);
    std::int64_t count = static_cast<std::int64_t>(ready.size());
    world_.broadcast(std::span<std::int64_t>(&count, 1));
    ready.resize(static_cast<std::size_t>(count));
    if (count > 0) world_.broadcast(std::span<double>(ready));
    here.ready = ready;
    here.overlaps = count > 0;
  }

  const mpi::Communicator& world_;
  const Sections& sections_;
  const engine::Registry& registry_;
  engine::PlannedRank rank_;
  const MeasureOptions& options_;
  mpi::Topology topology_;
};

/// The network of these ranks, by the measurements of `trainer doctor`.
Network network_here(const mpi::Communicator& world, int threads, const LinkSpeed& between) {
  DoctorFacts facts;
  measure_speed(world, threads, facts);
  for (int again = 1; again < kNetworkRounds; ++again) {
    DoctorFacts other;
    measure_speed(world, threads, other);
    facts.latency_us = std::min(facts.latency_us, other.latency_us);
    facts.message_gbs = std::max(facts.message_gbs, other.message_gbs);
    facts.memory_gbs = std::max(facts.memory_gbs, other.memory_gbs);
  }
  const double latency_us = world.all_reduce(facts.latency_us, mpi::Op::max);
  const double slowest_gbs = world.all_reduce(world.is_root() ? 1e6 : facts.message_gbs, mpi::Op::min);
  const double memory_gbs = world.all_reduce(facts.memory_gbs, mpi::Op::min);
  return {.memory = {latency_us / 1e6, memory_gbs * 1e9},
          .inside = {latency_us / 1e6, slowest_gbs * 1e9},
          .between = between};
}

}  // namespace

JobForm form_of(const engine::Workload& workload, const engine::JobPlan& plan) {
  JobForm form{.ranks = plan.shape.ranks,
               .hosts = plan.shape.hosts,
               .backend = plan.backend,
               .stage = workload.stage,
               .is_within_hosts = workload.is_within_hosts,
               .micro_batches = static_cast<double>(std::max<std::int64_t>(1, plan.ranks.front().micro_batches))};
  std::int64_t elements = 0;
  for (const parallel::ParameterSpec& parameter : workload.parameters) {
    elements += parameter.count();
    form.parameter_bytes += static_cast<double>(parameter.bytes());
  }
  std::int64_t updated = 0;
  for (const engine::PlannedRank& rank : plan.ranks) updated = std::max(updated, rank.updated);
  form.updated_share = elements > 0 ? static_cast<double>(updated) / static_cast<double>(elements) : 1;
  for (const std::int64_t bytes : plan.bucket_bytes) form.bucket_bytes.push_back(static_cast<double>(bytes));
  return form;
}

double host_total_bytes(const engine::JobPlan& plan, const MeasuredHere& here) {
  const double per_rank = static_cast<double>(here.activation_bytes) + here.base_bytes;
  return static_cast<double>(plan.host_bytes) + per_rank * plan.shape.ranks_of(0);
}

const LoneCosts& costs_for(const MeasuredHere& here, int ranks_per_host) {
  const LoneCosts* chosen = &here.lone.front();
  for (const LoneCosts& costs : here.lone) {
    if (costs.ranks <= ranks_per_host) chosen = &costs;
  }
  return *chosen;
}

MeasuredHere measure_here(const mpi::Communicator& world, const Sections& sections, const engine::Registry& registry,
                          const engine::Workload& workload, const engine::JobPlan& plan,
                          const MeasureOptions& options) {
  if (plan.ranks.front().samples == 0) {
    throw_agreed(ExitCode::configuration, "plan: no rank has a sample, so that nothing can be measured");
  }
  MeasuredHere here;
  here.base_bytes = world.all_reduce(resident_memory_mb(), mpi::Op::max) * 1024 * 1024;
  here.available_bytes = static_cast<double>(available_memory().value_or(0));
  here.network = network_here(world, 1, options.between);
  double speed = world.is_root() ? saving_speed(options.folder, static_cast<double>(plan.checkpoint_bytes())) : 0;
  world.broadcast(std::span<double>(&speed, 1));
  here.save_bytes_per_s = speed;

  const int most = std::min(world.size(), plan.shape.ranks);
  std::set<int> counts = {most};
  for (int count = 1; count < most; count *= 2) counts.insert(count);
  if (plan.shape.ranks > most || plan.shape.hosts > 1) counts.insert(std::min(most, plan.shape.ranks_of(0)));
  Rehearsals rehearsals(world, sections, registry, plan, options);
  for (const int count : counts) rehearsals.measure(count, here);

  const mpi::Topology topology = mpi::Topology::of(world, static_cast<int>(sections.at("comm").integer("hosts")));
  for (Check& check : here.checks) {
    engine::Workload smaller = workload;
    smaller.batch.global_batch_size.value = plan.ranks.front().samples * check.ranks;
    if (workload.batch.lanes.value > 0) smaller.batch.lanes.value = plan.ranks.front().micro_batches * check.ranks;
    const engine::JobShape shape{.ranks = check.ranks, .hosts = topology.host_of_rank.at(check.ranks - 1) + 1};
    const JobForm form = form_of(smaller, plan_job(smaller, shape));
    const LoneCosts& costs = costs_for(here, check.ranks);
    check.predicted_s = predict_step(form, costs, here.network, here.ready).seconds();
    check.spread = std::max(check.spread, costs.spread);
  }
  return here;
}

}  // namespace lockstep::trainer
