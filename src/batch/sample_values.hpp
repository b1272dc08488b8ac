// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <string>

namespace lockstep::batch {

/// The values of the samples of a batch, if `value` is a list that has one element for each sample and these elements
/// are not tensors. A DataContainer with `cpu_only` is such a list, too.
/// @return [N], inside `value`; null if `value` is something else
const ValueList* values_of_samples(const Value& value, std::int64_t samples);

}  // namespace lockstep::batch
