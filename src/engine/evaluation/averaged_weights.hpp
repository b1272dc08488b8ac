// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/distributed_data_parallel.hpp>

#include <functional>

#include "optim/averages/model_average.hpp"

namespace lockstep::engine {

/// Runs `body` with averaged weights and buffers in the model, where there is an average that has begun; then, and
/// after an exception too, the trained ones are back with all their bits. Without an average it only runs `body`.
/// Collective. After an exception each rank puts its own parts back, and waits for nobody: where parameters are shared
/// the others' are back once all ranks have come out of here, and where they are sharded after the next
/// ParameterStore::write.
/// @param average  of the wrapper's model; null = none
void with_average(parallel::DistributedDataParallel& wrapper, optim::ModelAverage* average,
                  const std::function<void()>& body);

}  // namespace lockstep::engine
