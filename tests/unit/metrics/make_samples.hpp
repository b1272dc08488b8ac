// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/metrics/meter.hpp>

#include <vector>

namespace lockstep::metrics {

using Rows = std::vector<std::vector<double>>;

/// Samples numbered from 0.
inline Samples make_samples(const Rows& outputs, const Rows& targets) {
  Samples samples;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    samples.indices.push_back(static_cast<std::int64_t>(i));
    samples.outputs.insert(samples.outputs.end(), outputs[i].begin(), outputs[i].end());
    samples.targets.insert(samples.targets.end(), targets[i].begin(), targets[i].end());
    samples.output_columns = outputs[i].size();
    samples.target_columns = targets[i].size();
  }
  return samples;
}

}  // namespace lockstep::metrics
