// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::engine {

/// The facts that decide whether the steps of a run can be captured as a CUDA graph, equal on every rank.
struct CaptureFacts {
  bool is_on_gpu = true;
  bool has_lanes = false;
  bool uses_closure = false;        ///< the optimizer evaluates the loss several times
  bool has_parts = false;           ///< optim.part or strategy.separate
  bool has_captured_form = true;    ///< whether train.step has one
  bool is_sharded = false;          ///< strategy.name=sharded, on several ranks
  bool has_fixed_hook_work = true;  ///< ddp.comm_hook: parallel::ChosenHook::is_recordable
  bool finds_unused = false;        ///< ddp.find_unused_parameters
  bool reads_gradients = false;     ///< a hook does
  bool times_sections = false;      ///< log.sections
  bool reports_times = false;       ///< ddp.report
  bool checks_writes = false;       ///< ddp.check_writes
};

/// Why steps are not captured: the end of a sentence that begins with "because". Empty = they are.
std::string reason_against_capture(const CaptureFacts& facts);

}  // namespace lockstep::engine
