// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>

#include <functional>

#include "differences.hpp"
#include "held_state.hpp"
#include "setup/strategy.hpp"

// The average of past weights in checkpoints: group /ema of checkpoints/FORMAT.md.
namespace lockstep::engine {

/// Visits what this rank holds of the average of every parameter, where the strategy keeps one.
void for_each_average(Strategy& strategy, const std::function<void(const HeldState&)>& visit);

/// Puts it beside the model, which is in the archive already. Collective; complete on ranks that write.
void capture_average(checkpoints::Archive& archive, Strategy& strategy, bool is_writer);

/// What of it does not fit. Nothing where the run or the checkpoint has none.
void compare_average(Differences& differences, const checkpoints::Archive& archive, Strategy& strategy);

/// Goes on with the stored average, or says why it begins anew. Where a parameter's does not fit, its average is what
/// the parameter is. After the parameters are restored. Collective.
void restore_average(Strategy& strategy, const checkpoints::Archive& archive);

}  // namespace lockstep::engine
