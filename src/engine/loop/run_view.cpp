// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/engine/run_view.hpp>
#include <lockstep/mpi/communicator.hpp>

#include "engine/loop/hook_list.hpp"
#include "engine/loop/record_reports.hpp"

namespace lockstep::engine {

void RunView::report(const Record& record) { reports.report(record, progress.step, world.is_root()); }

void RunView::notify(StepEvent event, const LastBatch& last) { hooks.notify(event, *this, last); }

void RunView::begin_evaluation() { hooks.each(&Hook::before_evaluation, *this); }

void RunView::end_evaluation(const Measured& results) { hooks.each(&Hook::after_evaluation, *this, results); }

}  // namespace lockstep::engine
