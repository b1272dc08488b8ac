// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/optim/optim_wrapper_dict.hpp>
#include <lockstep/parallel/separate_distributed_data_parallel.hpp>

#include <cstdint>

// Checkpoints of a training whose model has several optimizers, in a loop of a user's own. checkpoints/FORMAT.md names
// every path; data, schedule and hooks are handled by the caller.
namespace lockstep::engine {

/// The model, and every optimizer under its name. Between two steps of each of them. Collective; complete on ranks that
/// say so, empty elsewhere. The arrays borrow the live tensors: write the archive before the next step.
/// @param step  what the user counts
checkpoints::Archive capture(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers,
                             std::int64_t step, bool is_writer);

/// Puts all of that back, in place, once all of it is known to fit. Collective; every rank passes the same values.
/// @return  the step
/// @throws CheckpointError  another model, or other optimizers than those of the archive; lists what differs, on every
///                          rank
std::int64_t restore(parallel::SeparateDistributedDataParallel& wrapper, optim::OptimWrapperDict& optimizers,
                     const checkpoints::Archive& archive);

}  // namespace lockstep::engine
