// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

BucketReport report_of(const Reducer& reducer) {
  const auto* const adaptive = ability_of<AdaptiveReducer>(reducer);
  return adaptive != nullptr ? adaptive->report() : BucketReport();
}

BucketLayout learned_layout_of(const Reducer& reducer) {
  const auto* const adaptive = ability_of<AdaptiveReducer>(reducer);
  return adaptive != nullptr ? adaptive->learned_layout() : BucketLayout();
}

}  // namespace lockstep::parallel
