// SPDX-License-Identifier: BSD-3-Clause
#include "trainer/plan/prediction.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep::trainer {

namespace {

constexpr double kPieceBytes = 256 << 10;  // a piece of a slice that travels between hosts

double steps_of_tree(int members) { return std::ceil(std::log2(std::max(1, members))); }

/// (n - 1) / n.
double others(int members) { return 1.0 - 1.0 / members; }

JobTraffic operator+(JobTraffic sum, const JobTraffic& other) {
  const auto add = [](Traffic& target, const Traffic& from) {
    target.messages += from.messages;
    target.bytes += from.bytes;
  };
  add(sum.memory, other.memory);
  add(sum.inside, other.inside);
  add(sum.between, other.between);
  return sum;
}

bool uses_memory(const JobForm& form) { return form.backend == "shm" || form.backend == "hierarchical"; }

/// A small all-reduce, with which the ranks agree on the loss and on requests.
JobTraffic agreement(const JobForm& form) {
  JobTraffic traffic;
  traffic.inside.messages = 2 * steps_of_tree(form.ranks_per_host());
  traffic.between.messages = 2 * steps_of_tree(form.hosts);
  return traffic;
}

}  // namespace

JobTraffic bucket_traffic(const JobForm& form, double bytes) {
  const int local = form.ranks_per_host();
  JobTraffic traffic;
  if (form.ranks == 1) return traffic;
  if (uses_memory(form)) {
    traffic.memory.messages = local > 1 ? 2 * steps_of_tree(local) : 0;
    traffic.memory.bytes = bytes * others(local);
    if (form.hosts == 1) return traffic;
    const double in_flight = std::min(bytes, kPieceBytes * local);
    traffic.between.messages = 2.0 * (form.hosts - 1);
    traffic.between.bytes = 2 * bytes + 2.0 * (form.hosts - 1) * in_flight;
    return traffic;
  }
  if (local > 1) {
    traffic.inside.messages = 2 * steps_of_tree(local);
    traffic.inside.bytes = 2 * bytes * others(local);
  }
  if (form.hosts > 1) {
    traffic.between.messages = 2 * steps_of_tree(form.hosts);
    traffic.between.bytes = 2 * bytes * others(form.hosts) * local;  // each rank sends its own array
  }
  return traffic;
}

JobTraffic sharded_traffic(const JobForm& form) {
  const double whole = form.parameter_bytes;
  const double passes = form.stage == 3 ? 3 * form.micro_batches : form.stage == 2 ? form.micro_batches + 1 : 3;
  const auto units = static_cast<double>(std::max<std::size_t>(1, form.bucket_bytes.size()));
  const int local = form.ranks_per_host();
  const bool is_inside = form.is_within_hosts && form.hosts > 1;
  const double inside_passes = is_inside && form.stage == 1 ? 1 : passes;
  JobTraffic traffic;
  if (form.ranks == 1) return traffic;
  if (local > 1) {
    Traffic& level = uses_memory(form) ? traffic.memory : traffic.inside;
    level.messages = passes * units * steps_of_tree(local);
    level.bytes = inside_passes * whole * others(is_inside ? local : form.ranks);
    if (is_inside && form.stage == 1) level.bytes += 2 * whole * others(form.ranks);
  }
  if (form.hosts > 1) {
    traffic.between.messages = (is_inside ? 2 : passes) * units * steps_of_tree(form.hosts);
    traffic.between.bytes =
        is_inside ? 2 * whole * others(form.stage == 1 ? form.ranks : form.hosts) : passes * whole * others(form.ranks);
  }
  return traffic;
}

double seconds_of(const JobTraffic& traffic, const Network& network) {
  return network.memory.seconds(traffic.memory.messages, traffic.memory.bytes) +
         network.inside.seconds(traffic.inside.messages, traffic.inside.bytes) +
         network.between.seconds(traffic.between.messages, traffic.between.bytes);
}

double exposed_seconds(const std::vector<double>& ready, const std::vector<double>& costs, double compute_s) {
  double end = 0;
  for (std::size_t i = 0; i < costs.size(); ++i) end = std::max(end, ready.at(i)) + costs[i];
  return std::max(0.0, end - compute_s);
}

PredictedStep predict_step(const JobForm& form, const LoneCosts& costs, const Network& network,
                           const ReadyFractions& ready) {
  PredictedStep step{.compute_s = costs.step_s - costs.update_s, .update_s = costs.update_s * form.updated_share};
  JobTraffic all = agreement(form);
  std::vector<double> moments;
  std::vector<double> seconds;
  if (form.stage > 0) {
    const JobTraffic traffic = sharded_traffic(form);
    all = all + traffic;
    seconds = {seconds_of(traffic, network)};
    moments = {step.compute_s};
  } else {
    for (std::size_t b = 0; b < form.bucket_bytes.size(); ++b) {
      const JobTraffic traffic = bucket_traffic(form, form.bucket_bytes[b]);
      all = all + traffic;
      seconds.push_back(seconds_of(traffic, network));
      moments.push_back(step.compute_s * (b < ready.size() ? ready[b] : 1));
    }
  }
  const double exposed = exposed_seconds(moments, seconds, step.compute_s) + seconds_of(agreement(form), network);
  JobTraffic inside = all;
  inside.between = {};
  const double whole = seconds_of(all, network);
  const double part = whole > 0 ? seconds_of(inside, network) / whole : 1;
  step.inside_s = exposed * part;
  step.between_s = exposed * (1 - part);
  return step;
}

double Check::error() const { return std::max(measured_s / predicted_s, predicted_s / measured_s) - 1; }

double error_of(const std::vector<Check>& checks, double spread) {
  double error = 0;
  for (const Check& check : checks) {
    error = std::max(error, check.error());
    spread = std::max(spread, check.spread);
  }
  return error + spread;
}

double quantile_of(std::vector<double> values, double fraction) {
  if (values.empty()) return 0;
  const auto place = static_cast<std::size_t>(fraction * static_cast<double>(values.size()));
  const auto chosen = values.begin() + static_cast<std::ptrdiff_t>(std::min(place, values.size() - 1));
  std::nth_element(values.begin(), chosen, values.end());
  return *chosen;
}

double spread_of(const std::vector<double>& seconds) {
  const double median = median_of(seconds);
  return median > 0 ? (quantile_of(seconds, 0.9) - quantile_of(seconds, 0.1)) / median : 0;
}

double young_interval(double save_s, double mtbf_s) { return std::sqrt(2 * save_s * mtbf_s); }

double daly_interval(double save_s, double mtbf_s) {
  if (save_s >= 2 * mtbf_s) return mtbf_s;
  const double x = save_s / (2 * mtbf_s);
  return young_interval(save_s, mtbf_s) * (1 + std::sqrt(x) / 3 + x / 9) - save_s;
}

FailurePlan plan_failures(const FailureSettings& settings, int hosts, double run_s) {
  FailurePlan plan;
  plan.job_mtbf_s = settings.mtbf_hours * 3600 / hosts;
  plan.young_s = young_interval(settings.save_s, plan.job_mtbf_s);
  plan.daly_s = daly_interval(settings.save_s, plan.job_mtbf_s);
  const double interval = std::min(plan.daly_s, run_s);
  plan.wall_s = plan.job_mtbf_s * std::exp(settings.restart_s / plan.job_mtbf_s) *
                std::expm1((interval + settings.save_s) / plan.job_mtbf_s) * run_s / interval;
  plan.failures = plan.wall_s / plan.job_mtbf_s;
  plan.effective = run_s / plan.wall_s;
  return plan;
}

}  // namespace lockstep::trainer
