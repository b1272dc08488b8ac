// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::batch {

/// One sample of a batch, as the sampler chose it. A sample may depend on its draw, the files, the seed and the
/// configuration, but not on the rank or the thread that makes it, or on their number.
struct Draw {
  std::int64_t index = 0;     ///< of the sample in its data set
  std::int64_t epoch = 0;     ///< from 0; evaluations are epoch 0
  std::int64_t position = 0;  ///< in the order of its epoch, from 0

  bool operator==(const Draw&) const = default;
};

/// The samples [begin, begin + count) of a data set in its own order, as evaluations take them.
std::vector<Draw> draws_in_order(std::int64_t begin, std::int64_t count);

}  // namespace lockstep::batch
