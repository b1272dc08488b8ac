// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep::trainer {

/// Draws the losses of <folder>/metrics.jsonl over the steps into <folder>/loss.svg.
void draw_curves(const std::string& folder);

}  // namespace lockstep::trainer
