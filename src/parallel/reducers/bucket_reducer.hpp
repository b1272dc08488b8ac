// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>
#include <lockstep/parallel/ddp_options.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "batch/late_values.hpp"
#include "parallel/reducers/autograd_graph.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/store/reducer.hpp"
#include "parallel/sync/gradient_buckets.hpp"

namespace lockstep::parallel {

/// Averages gradients over ranks in buckets while backward is still running.
///
/// A hook on every parameter's gradient accumulator moves the finished gradient into its bucket and makes `.grad` a
/// view of it. Buckets are started strictly in index order, so that all ranks issue the same collectives without
/// further agreement, and are awaited at the end of backward. Depends on parameters, buckets and a Collectives object;
/// not on models, losses or optimizers.
///
/// The first synchronized step uses one bucket per dtype. Then, unless unused parameters are searched for, the buckets
/// are rebuilt once, in the order in which gradients arrived on rank 0.
///
/// An undefined gradient differs from zero: a parameter that no rank used in a step keeps its previous `.grad`. A
/// parameter that some rank used receives the average on all ranks, where ranks without it count as zero.
class BucketReducer : public Reducer, public SlicedReducer, public AdaptiveReducer, public UnevenRanks {
 public:
  /// Allocates the buckets. Collective.
  /// @param parameters   in registration order; each has requires_grad
  /// @param collectives  of several ranks; outlives the reducer
  /// @param world        the same ranks; for rare agreements and for explaining failures; outlives the reducer
  BucketReducer(std::vector<NamedParameter> parameters, const ReducerOptions& options, mpi::Collectives& collectives,
                const mpi::Communicator& world, ReducerObserver observer = {});

  void prepare(Synchronization mode) override;
  bool watches_outputs() const noexcept override { return options_.finds_unused || options_.has_static_graph; }
  std::vector<at::Tensor> watch(std::vector<at::Tensor> outputs) override;
  void check_last_step() override;
  void finish() override;
  bool is_sliced() const noexcept override { return is_sliced_; }
  bool has_gradient(std::size_t parameter) const override { return tail_[1 + parameter] != 0; }
  void visit(std::size_t parameter, std::int64_t begin, std::int64_t end, const Visit& visit, bool keeps) override;
  void release() noexcept override { is_sliced_ = false; }
  void reset(GivenUp what) override;
  bool supports_slices() const noexcept override;
  BucketReport report() const override;
  BucketLayout learned_layout() const override;
  bool restore_layout(const BucketLayout& layout) override;
  void contribute_zeros() override;
  void set_divisor(int ranks) override { divisor_ = ranks; }

  /// Replaces the average of dense gradients. Before the first step, and only once. Not collective.
  /// @param is_silent  the hook sends nothing, and the reducer does not either: sparse gradients, use counts and
  ///                   errors about missing gradients then concern each rank alone
  /// @throws ConfigError  there is a hook already, or a step was run
  void set_comm_hook(CommHook hook, bool is_silent) { hook_.set(std::move(hook), is_silent, finished_steps_ > 0); }

 private:
  void on_accumulated(std::size_t parameter, bool has_gradient);

  bool is_rebuilding() const { return !options_.finds_unused; }
  bool is_learning() const { return options_.has_static_graph && finished_steps_ == 0; }
  GradientBuckets& buckets() { return gradients_.buckets(); }
  const GradientBuckets& buckets() const { return gradients_.buckets(); }
  std::size_t tail_count() const { return 1 + gradients_.size(); }

  void build(std::vector<Bucket> plan);
  void rebuild_by_arrival();
  void begin_step();

  bool is_complete_use(std::size_t parameter);
  void mark_unused();
  void mark_ready(std::size_t parameter);
  void start_ready_buckets();
  void start(std::size_t b);
  bool is_for_hook(std::size_t b) const;
  void fill_tail();
  void queue_end_of_backward();

  std::string mark_missing();
  void complete();
  void complete_sliced();
  void complete_whole();
  void await_buckets();
  void read_tail();
  void assign_averages();
  void check_late_tail();
  void queue_late_tail();
  void end_started();
  [[noreturn]] void fail(const std::string& missing);

  ReducerOptions options_;
  mpi::Collectives& collectives_;
  const mpi::Communicator& world_;
  BucketedGradients gradients_;
  UnusedParameters unused_;
  StaticGraph graph_;
  HookSlot hook_;
  SliceVisits visits_;
  ReducerObserver observer_;
  StepRecorder* recorder_;
  int divisor_;

  std::vector<std::size_t> pending_;  // number of gradients still to come, for each bucket
  std::vector<mpi::Ticket> tickets_;  // ticket of each bucket
  std::vector<char> is_ready_;        // flags of the parameters whose contribution to this step is in the bucket
  std::vector<double> tail_;  // average over ranks: the number of missing gradients, then for each parameter its uses
  std::vector<std::size_t> arrival_;  // parameters in the order in which their gradients came in the first step
  bool has_late_tail_ = false;        // tail_ is what is expected; the true one is still to be read
  std::string late_missing_;          // the parameters of this rank without a gradient, if has_late_tail_
  batch::LateValues queued_tail_;     // that of the step before, on its way to the host
  std::string queued_missing_;        // goes with it
  std::unique_ptr<AccumulatorHooks> hooks_;
  std::shared_ptr<void> alive_ = std::make_shared<char>();  // graphs may outlive the reducer
  std::mutex mutex_;                                        // backward may run on one thread per device

  Synchronization mode_ = Synchronization::none;  // fixed at forward
  bool is_expecting_ = false;                     // a synchronized backward is to come or runs
  bool has_begun_ = false;                        // it runs
  bool is_callback_queued_ = false;
  bool has_marked_unused_ = false;
  bool is_rebuilt_ = false;
  bool is_sliced_ = false;
  std::size_t ready_count_ = 0;
  std::size_t started_ = 0;  // buckets
  double missing_count_ = 0;
  std::int64_t finished_steps_ = 0;
};

/// Sets the hook of any reducer. One rank alone communicates nothing, so its reducer has no hook.
/// @throws ConfigError  as BucketReducer::set_comm_hook
void set_comm_hook(Reducer& reducer, CommHook hook, bool is_silent = false);

}  // namespace lockstep::parallel
