// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/job_plan.hpp"
#include "engine/workload.hpp"
#include "trainer/plan/prediction.hpp"

namespace lockstep::trainer {

/// The measurements on the ranks at hand, the same on every rank.
struct MeasuredHere {
  int ranks = 1;                                            ///< ranks that trained together for the next members
  double step_s = 0;                                        ///< median time of a step
  std::vector<std::pair<std::string, double>> phases = {};  ///< mean seconds of a step on rank 0, by section
  double data_s = 0;                                        ///< part of a step in which rank 0 waited for data
  std::int64_t activation_bytes = 0;                        ///< growth of memory in a step on rank 0
  engine::HeldBytes held = {};                              ///< memory of rank 0, without batches
  double base_bytes = 0;             ///< memory of a process before training: program and libraries
  double available_bytes = 0;        ///< memory of this host that can be used; 0 = unknown
  bool overlaps = false;             ///< buckets were reduced during backward
  ReadyFractions ready = {};         ///< one for each bucket; empty = not measured, or no overlap
  Network network = {};              ///< `between` is that of the options
  double save_bytes_per_s = 0;       ///< speed of a durable file where the run will be; 0 = unknown
  std::vector<LoneCosts> lone = {};  ///< costs by increasing number of ranks
  std::vector<Check> checks = {};    ///< likewise
};

struct MeasureOptions {
  double seconds = 1;       ///< duration of each of the measurements
  LinkSpeed between = {};   ///< link between hosts
  std::string folder = {};  ///< folder of the run; empty = the current one
};

/// The layout of a planned job, for predictions.
JobForm form_of(const engine::Workload& workload, const engine::JobPlan& plan);

/// Trains on 1, 2, 4, ... ranks, at most those of the job and of `plan`, with the samples per rank of `plan`: first
/// each rank alone, all at the same time, then together. The first is the basis of predictions, the second checks them.
/// Collective.
/// @throws ConfigError  the first rank of the plan has no samples, or what training refuses
MeasuredHere measure_here(const mpi::Communicator& world, const Sections& sections, const engine::Registry& registry,
                          const engine::Workload& workload, const engine::JobPlan& plan, const MeasureOptions& options);

/// The memory of the first host of a job, with activations and processes.
double host_total_bytes(const engine::JobPlan& plan, const MeasuredHere& here);

/// The measurements of as many ranks as a host of the job has, or of the next smaller number.
const LoneCosts& costs_for(const MeasuredHere& here, int ranks_per_host);

}  // namespace lockstep::trainer
