// SPDX-License-Identifier: BSD-3-Clause
#include "engine/evaluation/averaged_weights.hpp"

namespace lockstep::engine {

void with_average(parallel::DistributedDataParallel& wrapper, optim::ModelAverage* average,
                  const std::function<void()>& body) {
  if (average == nullptr || !average->has_begun()) return body();
  wrapper.synchronize_buffers();  // training continues as if no average were evaluated
  average->swap();
  try {
    body();
  } catch (...) {
    average->swap_alone();
    throw;
  }
  average->swap();
}

}  // namespace lockstep::engine
