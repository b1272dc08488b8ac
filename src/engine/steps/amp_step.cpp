// SPDX-License-Identifier: BSD-3-Clause
#include "engine/steps/rows.hpp"

namespace lockstep::engine {

// Autocast is in the wrapper's context, the loss scale in the optimizer's wrapper: with train.precision=fp32 both are
// off, and the step is the simple one.
TrainStep amp_step(const Section&) { return ManualStep(step_on_all_losses); }

}  // namespace lockstep::engine
