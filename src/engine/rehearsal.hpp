// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_report.hpp>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/job_plan.hpp"
#include "engine/settings/builtin_registry.hpp"

namespace lockstep::engine {

/// The measurements of a few training steps on this rank.
struct Rehearsal {
  std::vector<double> step_seconds;                      ///< each step, from the end of the step before
  double data_seconds = 0;                               ///< mean time of a step in which the rank waited for data
  std::vector<std::pair<std::string, double>> sections;  ///< mean seconds of a step, by section, in their order
  std::int64_t activation_bytes = 0;                     ///< growth of the memory of tensors in a step
  HeldBytes held;              ///< parameters, state, buffers, gradients in buckets; no other kinds
  parallel::DdpReport report;  ///< empty on other ranks than 0, and with one rank
};

/// Trains for about `seconds`, at least ten steps, after a few steps that are not measured. Nothing is saved, evaluated
/// or logged.
/// @param sections  the keys of a training with the global batch of these ranks
/// Collective.
/// @throws  what training throws
Rehearsal rehearse(const mpi::Communicator& world, Sections sections, const Registry& registry, double seconds);

}  // namespace lockstep::engine
