// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "parallel/reducers/uneven_ranks.hpp"
#include "parallel/store/reducer.hpp"

namespace lockstep::parallel {

/// The reducer of one rank alone: its own gradients are the average. No hooks, no buckets, no collectives.
class LocalReducer : public Reducer, public UnevenRanks {
 public:
  void prepare(Synchronization) override {}
  void finish() override {}
  bool is_sliced() const noexcept override { return false; }
  bool has_gradient(std::size_t) const override { return false; }
  void visit(std::size_t, std::int64_t, std::int64_t, const Visit&, bool) override {}
  void release() noexcept override {}
  void reset(GivenUp /*what*/) override {}
  void contribute_zeros() override {}
  void set_divisor(int /*ranks*/) override {}
};

}  // namespace lockstep::parallel
