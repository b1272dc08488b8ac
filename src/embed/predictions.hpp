// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/distributed_data_parallel.hpp>
#include <lockstep/session.hpp>

#include "embed/samples.hpp"

namespace lockstep::embed {

/// The outputs of a model and its predictions, by name. Not collective.
/// @param model   whose forward passes do not communicate; is in evaluation mode afterwards
/// @param inputs  can have no samples
SampleTensors predictions_of(parallel::DistributedDataParallel& model, const SampleForm& form,
                             const SampleTensors& inputs);

}  // namespace lockstep::embed
