// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/ddp_report.hpp>

#include <string>

namespace lockstep::trainer {

/// Draws the losses of <folder>/metrics.jsonl over the steps into <folder>/loss.svg.
void draw_curves(const std::string& folder);

/// Draws the slowest rank's step into <folder>/ddp.svg, and what the page of the run shows into <folder>/ddp.json,
/// if there is one to show.
void draw_ddp_report(const parallel::DdpReport& report, const std::string& folder);

}  // namespace lockstep::trainer
