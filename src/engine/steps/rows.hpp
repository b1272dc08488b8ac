// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/train_step.hpp>

namespace lockstep::engine {

/// The wrapper's own step: what is trained are the losses whose names say so.
TrainStep model_step(const Section& train);
/// The sum of all losses, in the type of the parameters.
/// @throws ConfigError  train.precision is of 16 bits
TrainStep simple_step(const Section& train);
/// The same in the type of train.precision.
TrainStep amp_step(const Section& train);

/// A step that trains the sum of all losses.
parallel::StepResult step_on_all_losses(StepContext& at);

/// Backward and update, told to the hooks. The losses' numbers are the result's.
/// @param last  as it was told with Moment::loss
parallel::StepResult finish_step(StepContext& at, const models::ParsedLosses& losses, const LastBatch& last,
                                 const std::function<void()>& after_backward = {});

/// @throws std::logic_error  somebody has put the model into evaluation mode
void require_training_mode(const StepContext& at);

}  // namespace lockstep::engine
