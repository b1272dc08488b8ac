// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Predicted times of a job. Pure functions of measurements on a few ranks.
namespace lockstep::trainer {

/// One level of the network. A message of n bytes takes latency_s + n / bytes_per_s.
struct LinkSpeed {
  double latency_s = 0;
  double bytes_per_s = 1;

  double seconds(double messages, double bytes) const { return messages * latency_s + bytes / bytes_per_s; }
};

/// The levels between ranks.
struct Network {
  LinkSpeed memory = {};   ///< shared memory of a host: the bandwidth of a rank while all ranks of the host read
  LinkSpeed inside = {};   ///< messages inside a host
  LinkSpeed between = {};  ///< link between hosts, which the ranks of a host share
};

/// How a job is laid out.
struct JobForm {
  int ranks = 1;
  int hosts = 1;
  std::string backend = "self";           ///< "self", "shm", "mpi" or "hierarchical"
  int stage = 0;                          ///< stage of sharding; 0 = ddp or single
  bool is_within_hosts = false;           ///< see Sharding::is_within_hosts
  double parameter_bytes = 0;             ///< trained parameters
  std::vector<double> bucket_bytes = {};  ///< buckets of gradients, in the order of reduction
  double micro_batches = 1;               ///< forward passes of a rank per step
  double updated_share = 1;               ///< part of the elements that a rank updates
  int ranks_per_host() const { return (ranks + hosts - 1) / hosts; }
};

/// The communication of a step at one level: messages that follow each other, and bytes.
struct Traffic {
  double messages = 0;
  double bytes = 0;
};

struct JobTraffic {
  Traffic memory = {};
  Traffic inside = {};
  Traffic between = {};
};

/// The traffic of one bucket of gradients with strategy ddp.
///
/// shm: a rank reads its slice of the arrays of all other ranks of its host, and all ranks meet twice. hierarchical:
/// the same, and slices travel along a chain of the hosts and back in pieces of 256 KiB, so that a host sends every
/// byte twice, after 2 (hosts - 1) pieces that fill the chain. mpi: recursive halving and doubling, with
/// 2 log2(ranks) messages and 2 (ranks - 1) / ranks of the bytes. Source: Thakur, Rabenseifner and Gropp, "Optimization
/// of collective communication operations in MPICH" (2005).
JobTraffic bucket_traffic(const JobForm& form, double bytes);

/// The traffic of a whole step with strategy sharded: the bytes of the table in docs/distributed.md.
JobTraffic sharded_traffic(const JobForm& form);

double seconds_of(const JobTraffic& traffic, const Network& network);

/// The time after the end of computing until the last bucket is reduced. A bucket starts when it is ready and the one
/// before it is reduced.
/// @param ready  seconds since the start of the step, by bucket
/// @param costs  seconds of the reduction of each bucket
double exposed_seconds(const std::vector<double>& ready, const std::vector<double>& costs, double compute_s);

/// The measurements of ranks that train alone, all at the same time, with the samples that a rank of the job has.
struct LoneCosts {
  int ranks = 1;        ///< ranks that trained at the same time on this host
  double step_s = 0;    ///< median time of a step on the slowest rank
  double update_s = 0;  ///< part of it: the update of all parameters
  double spread = 0;    ///< relative difference of slow and fast steps
};

/// The moments at which buckets were ready, as a fraction of the time until the end of backward.
using ReadyFractions = std::vector<double>;

/// The predicted times of a step, in seconds.
struct PredictedStep {
  double compute_s = 0;
  double update_s = 0;
  double inside_s = 0;   ///< communication inside hosts that is not hidden by computing
  double between_s = 0;  ///< the same between hosts

  double seconds() const { return compute_s + update_s + inside_s + between_s; }
};

/// @param ready  empty = buckets are reduced after backward
PredictedStep predict_step(const JobForm& form, const LoneCosts& costs, const Network& network,
                           const ReadyFractions& ready = {});

/// A prediction for ranks that are at hand, and what they took.
struct Check {
  int ranks = 1;
  double predicted_s = 0;
  double measured_s = 0;
  double spread = 0;  ///< relative difference of slow and fast steps

  double error() const;  ///< ratio of the larger time to the smaller one, minus 1
};

/// The error of predictions: a time is expected between predicted / (1 + error) and predicted * (1 + error). It is the
/// sum of the largest error of a check and of the largest spread.
double error_of(const std::vector<Check>& checks, double spread);

/// The value above this fraction of the values; 0 = there are none.
double quantile_of(std::vector<double> values, double fraction);
inline double median_of(std::vector<double> values) { return quantile_of(std::move(values), 0.5); }
/// The relative difference between slow and fast steps: (90 % quantile - 10 % quantile) / median.
double spread_of(const std::vector<double>& seconds);

// ---- Failures

struct FailureSettings {
  double mtbf_hours = 0;  ///< mean time between failures of one host; > 0
  double save_s = 1;      ///< time of a save; > 0
  double restart_s = 60;  ///< time from a failure until the run continues
};

/// The cost of failures.
struct FailurePlan {
  double job_mtbf_s = 0;  ///< mean time between failures of the job
  double young_s = 0;     ///< best interval between saves by Young (1974)
  double daly_s = 0;      ///< the same by Daly (2006)
  double wall_s = 0;      ///< expected time of the run, with saves, restarts and repeated steps
  double failures = 0;    ///< expected number in this time
  double effective = 1;   ///< part of this time in which training advances
};

/// Young, "A first order approximation to the optimum checkpoint interval" (1974): sqrt(2 d M), where d is the time of
/// a save and M the mean time between failures.
double young_interval(double save_s, double mtbf_s);
/// Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps" (2006): with
/// x = d / (2 M), sqrt(2 d M) (1 + sqrt(x) / 3 + x / 9) - d for d < 2 M, else M.
double daly_interval(double save_s, double mtbf_s);
/// The expected time by the same article: M e^(R / M) (e^((t + d) / M) - 1) T / t, where R is the time
/// of a restart, t the interval and T the time without failures and saves.
/// @param run_s  time of the run without failures and saves
FailurePlan plan_failures(const FailureSettings& settings, int hosts, double run_s);

}  // namespace lockstep::trainer
