// SPDX-License-Identifier: BSD-3-Clause
// The built-in curves: each reads its options from a rule and is then a pure function of the step.
#pragma once

#include <lockstep/schedule/schedule.hpp>

namespace lockstep::schedule {

/// `factor` from begin to end, then 1.
Curve constant_curve();
/// From start_factor at begin to end_factor at end.
Curve linear_curve();
/// gamma^floor(t / size), where t counts from begin.
Curve step_curve();
/// gamma^(number of milestones reached), milestones counted from begin.
Curve multistep_curve();
/// From 1 at begin to final_factor at end along half a cosine wave.
Curve cosine_curve();

}  // namespace lockstep::schedule
