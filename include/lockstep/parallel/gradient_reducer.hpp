// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/bucket_plan.hpp>
#include <lockstep/parallel/parameter_store.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep::parallel {

/// Averages gradients over ranks in buckets, while backward is still running.
///
/// A hook on every parameter's gradient accumulator moves the finished gradient into its bucket and makes `.grad` a
/// view of it. Buckets are started strictly in index order, so all ranks issue the same collectives without talking
/// about it, and are awaited at the end of backward. Knows parameters, buckets and a Collectives; no model, loss or
/// optimizer. With one rank there are no hooks and no collectives.
class GradientReducer {
 public:
  /// Collective: allocates the buckets.
  /// @param parameters   in registration order; each has requires_grad
  /// @param collectives  outlives the reducer
  /// @param world        the same ranks; used only to explain failures
  GradientReducer(std::vector<NamedParameter> parameters, std::vector<Bucket> buckets, mpi::Collectives& collectives,
                  const mpi::Communicator& world);
  ~GradientReducer();  ///< removes the hooks; gradients stay as they are
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Says how the backward passes of the forward that follows are meant; the wrapper calls it before every forward.
  /// @param synchronise  false: gradients only accumulate on this rank (no_sync)
  void prepare(bool synchronise);

  /// Completes a synchronised backward: afterwards every `.grad` holds the average. Called by itself at the end of
  /// backward; a caller that must know (backward may have reached no parameter at all) calls it again, at no cost.
  /// Collective, if the forward was prepared to synchronise.
  /// @throws ConfigError  on every rank, naming the parameters that got no gradient and the ranks where
  void finish();

  /// Forgets a step that an exception cut short, so that the next prepare starts afresh.
  void reset();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::parallel
