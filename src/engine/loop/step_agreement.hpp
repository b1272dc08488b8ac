// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <span>
#include <vector>

// The agreement of the ranks at the end of a step. Each rank packs its requests into numbers, one all_reduce sums them,
// and each rank unpacks the sums.
namespace lockstep::engine {

class PerfStats;

/// The requests of one rank.
struct StepWishes {
  bool stops = false;  ///< any rank can request this
  bool saves = false;  ///< only rank 0 can request this, `ends` and `evaluates`; other ranks are ignored
  bool ends = false;
  bool evaluates = false;
  bool has_failed = false;
  bool reads_report =
      true;  ///< that of the step at hand, now; the losses are then of this step, unless they are of another
};

/// The result of the agreement.
struct StepAgreement {
  bool stops = false;
  bool saves = false;
  bool ends = false;
  bool evaluates = false;
  bool has_failed = false;     ///< whether any rank has failed
  int readers = 0;             ///< ranks that read the report of the step at hand
  std::vector<double> losses;  ///< the sums of what the ranks know of the loss
};

/// The number of ranks that request a stop, the requests of rank 0, the numbers of ranks that have failed and that read
/// the report, and the losses.
std::vector<double> pack(const StepWishes& wishes, bool is_root, std::span<const double> losses);
/// @param sums  of what all ranks have packed
StepAgreement unpack(std::span<const double> sums);

/// Agrees on the requests of all ranks and on the loss, with one all_reduce. Collective.
/// @param losses  what this rank knows of the loss
/// @param reads_report  as StepWishes
/// @param perf    takes the time of the all_reduce; may be null
/// @throws  on every rank, the failure of the lowest rank that has one
StepAgreement agree(const RunRequests& requests, std::span<const double> losses, bool reads_report,
                    const mpi::Communicator& world, mpi::Collectives& collectives, PerfStats* perf);

}  // namespace lockstep::engine
