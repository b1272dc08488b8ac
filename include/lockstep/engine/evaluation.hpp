// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/strategy.hpp>
#include <lockstep/engine/train_step.hpp>
#include <lockstep/metrics/classification.hpp>
#include <lockstep/metrics/meters.hpp>

#include <cstdint>
#include <functional>

namespace lockstep::engine {

/// The meters that `eval.metrics` names, with nothing counted.
/// @param eval  the section `eval`
/// @param rows  which may be named
/// @throws ConfigError  an unknown one, with the nearest, options that do not fit, or two numbers of one name
/// Not collective.
metrics::Meters make_meters(const Section& eval, const Task& task,
                            const std::vector<metrics::MeterRow>& rows = metrics::builtin_meters());

/// Counts a whole data set: every sample once. Each rank takes its share of the batches, and their losses are added in
/// one order, so the result has the same bits on any number of ranks. A rank without a batch takes part in the
/// collectives like any other.
/// @param batch_size  samples of one forward; >= 1
/// @param meters      count it, too, for all ranks together: ready to be read on each
/// @return            sums over all ranks, the same on each
/// @param tell        called with Moment::forward and Moment::loss of every batch of this rank; may be empty
/// @throws DataError  on every rank: what a data set, a meter or a hook refuses on one
/// Collective. The model is in evaluation mode meanwhile.
metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size,
                                     metrics::Meters& meters,
                                     const std::function<void(Moment, const LastBatch&)>& tell = {});
/// Without meters.
metrics::ClassificationSums evaluate(Strategy& strategy, const data::Dataset& dataset, std::int64_t batch_size);

}  // namespace lockstep::engine
