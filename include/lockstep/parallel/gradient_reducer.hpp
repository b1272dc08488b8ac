// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/bucket_plan.hpp>
#include <lockstep/parallel/comm_hook.hpp>
#include <lockstep/parallel/gradient_source.hpp>
#include <lockstep/parallel/named_parameter.hpp>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::parallel {

class StepRecorder;

struct ReducerOptions {
  BucketLimits limits = {};
  /// Search the graph of each forward's outputs for parameters that it does not use, and do not wait for these.
  bool finds_unused = false;
  /// The graph of the first synchronised step is that of all: how often each parameter is used is learned there.
  bool has_static_graph = false;
};

/// What the backward passes that follow a forward are for.
enum class Synchronisation {
  none,    ///< gradients only accumulate on this rank (no_sync)
  whole,   ///< afterwards every `.grad` holds the average over ranks
  sliced,  ///< gradients are averaged while an update visits them; until then `.grad` cannot be read
};

/// Averages gradients over ranks in buckets, while backward is still running.
///
/// A hook on every parameter's gradient accumulator moves the finished gradient into its bucket and makes `.grad` a
/// view of it. Buckets are started strictly in index order, so all ranks issue the same collectives without talking
/// about it, and are awaited at the end of backward. Knows parameters, buckets and a Collectives; no model, loss or
/// optimizer. With one rank there are no hooks and no collectives.
///
/// The first synchronised step uses one bucket per dtype. Then, unless unused parameters are searched for, buckets are
/// built once more, in the order in which gradients came on rank 0.
///
/// None is not zero: a parameter that no rank used in a step keeps the `.grad` that it had. One that some rank used
/// gets the average everywhere, ranks without it counting as zero.
class GradientReducer : public GradientSource {
 public:
  /// Collective: allocates the buckets.
  /// @param parameters   in registration order; each has requires_grad
  /// @param collectives  outlives the reducer
  /// @param world        the same ranks; for what is agreed now and then, and to explain failures
  GradientReducer(std::vector<NamedParameter> parameters, const ReducerOptions& options, mpi::Collectives& collectives,
                  const mpi::Communicator& world);
  ~GradientReducer() override;  ///< removes the hooks; gradients stay as they are
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Says how the backward passes of the forward that follows are meant; the wrapper calls it before every forward
  /// with gradients. What was latched then counts, whatever is set when backward runs. Collective when it rebuilds.
  /// @throws ConfigError  the step before left some parameters without gradient; on every rank, naming them
  void prepare(Synchronisation synchronisation);

  /// Looks at what a forward returned; the wrapper gives its caller the result instead. Tensors without a gradient
  /// function come back as they are. Needed with finds_unused and has_static_graph; otherwise it returns its argument.
  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs);

  /// Completes a synchronised backward. Whole: called by itself at the end of backward; a caller that must know
  /// (backward may have reached no parameter at all) calls it again. Sliced: called before visit.
  /// @throws ConfigError  on every rank, naming the parameters that got no gradient and the ranks where
  void finish() override;
  bool is_sliced() const noexcept override;
  bool has_gradient(std::size_t parameter) const override;
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  void release() noexcept override;
  void on_new_buckets(std::function<void(const std::vector<Bucket>&)> listener) override;

  /// Replaces averaging of dense gradients. Before the first backward, and once.
  /// @param is_silent  the hook sends nothing, and then the reducer does not either: sparse gradients, use_counts and
  ///                   complaints about missing gradients are each rank's own, too
  /// @throws ConfigError  there is a hook already, or a step has run
  void set_comm_hook(CommHook hook, bool is_silent = false);
  /// Whether gradients can be given in slices: not with a hook or sparse gradients.
  bool supports_slices() const noexcept;

  /// Brings the zero gradients of a rank that has no more inputs into one synchronised step. Collective.
  void contribute_nothing();
  /// From now on averages are over `ranks` instead of all: those that still have inputs.
  void set_divisor(int ranks);

  /// Forgets a step that an exception cut short, so that the next prepare starts afresh. Collective.
  void reset();

  /// Tells `recorder` from now on when buckets are ready, launched and awaited; it outlives the reducer.
  void record_into(StepRecorder& recorder);

  /// The layout that the next step's buckets will have, once the first step has told in which order gradients come:
  /// then rank 0 knows it, and from the second step on all do. None before, and where buckets are never built anew.
  BucketLayout learned_layout() const;
  /// Begins with a layout that an earlier run has learned, instead of learning one. Before the first step. Collective:
  /// every rank brings the same.
  /// @return  false: it does not fit these parameters, or nothing is ever learned here; then nothing changes
  bool restore_layout(const BucketLayout& layout);

  const std::vector<Bucket>& buckets() const noexcept;
  bool is_rebuilt() const noexcept;
  /// With finds_unused: whether every step so far left the same parameters unused, so that a static graph would do.
  bool could_be_static() const noexcept;
  /// Ranks that used each parameter in the last finished step.
  std::vector<int> use_counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::parallel
