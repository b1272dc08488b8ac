// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

/// The reducer of one rank alone: its own gradients are the average. No hooks, no buckets, no collectives.
class LocalReducer : public Reducer, public UnevenRanks {
 public:
  void prepare(Synchronization) override {}
  void finish() override {}
  void reset(GivenUp /*what*/) override {}
  void contribute_zeros() override {}
  void set_divisor(int /*ranks*/) override {}
};

}  // namespace lockstep::parallel
