// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/metrics/classification.hpp>

#include <cstdint>

namespace lockstep::engine {

/// Counts a whole data set: every sample once. Each rank takes its share of the batches, and their losses are added in
/// one order, so the result has the same bits on any number of ranks.
/// @param batch_size  samples of one forward; >= 1
/// @return            sums over all ranks, the same on each
/// Collective. The model is in evaluation mode meanwhile.
metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size);

}  // namespace lockstep::engine
