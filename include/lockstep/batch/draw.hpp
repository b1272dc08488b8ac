// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::batch {

/// One sample of a batch, as selected by the sampler. The content of a sample can depend on its draw, the files, the
/// seed and the configuration. It does not depend on the rank or thread that loads it, or on their number.
struct Draw {
  std::int64_t index = 0;     ///< index of the sample in the data set
  std::int64_t epoch = 0;     ///< epoch, from 0; evaluations are epoch 0
  std::int64_t position = 0;  ///< position in the order of the epoch, from 0

  bool operator==(const Draw&) const = default;
};

/// The samples [begin, begin + count) of a data set in its order, as used by evaluations.
std::vector<Draw> draws_in_order(std::int64_t begin, std::int64_t count);

}  // namespace lockstep::batch
