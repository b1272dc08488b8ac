// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>
#include <lockstep/parallel/comm_hook.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {

/// The memory of buckets, and every parameter's place in it.
///
/// Behind the gradients of the last bucket lies the tail: numbers of the same dtype that travel with it.
class GradientBuckets {
 public:
  GradientBuckets() = default;
  /// Collective: allocates.
  GradientBuckets(std::vector<Bucket> buckets, const std::vector<NamedParameter>& parameters, std::size_t tail_count,
                  mpi::Collectives& collectives);

  std::size_t size() const noexcept { return buckets_.size(); }
  const std::vector<Bucket>& plan() const noexcept { return buckets_; }
  const Bucket& bucket(std::size_t b) const { return buckets_[b]; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }
  std::int64_t offset_of(std::size_t parameter) const { return offset_of_[parameter]; }

  /// A view of the parameter's gradient, of its shape and strides; undefined where gradients are sparse.
  const at::Tensor& view(std::size_t parameter) const { return views_[parameter]; }
  std::byte* memory(std::size_t b) const { return memory_[b].bytes.data(); }
  std::size_t element_bytes(std::size_t b) const { return size_of(buckets_[b].dtype); }

  /// Elements that the collective of a bucket takes: the last one's include the tail.
  std::size_t reduced_count(std::size_t b) const;
  mpi::Slice tail_slice() const;
  void write_tail(std::span<const double> values);
  /// The tail, where its bucket is.
  const at::Tensor& tail() const noexcept { return tail_; }

  /// The bucket as a communication hook sees it.
  GradBucket as_hook_sees(std::size_t b, const std::vector<NamedParameter>& parameters) const;

 private:
  std::vector<Bucket> buckets_;
  std::size_t tail_count_ = 0;
  at::Tensor tail_;
  std::vector<mpi::BucketMemory> memory_;  // memory of each bucket
  std::vector<std::size_t> bucket_of_;     // bucket of each parameter
  std::vector<std::int64_t> offset_of_;    // offset of each parameter in its bucket
  std::vector<at::Tensor> views_;          // view of each parameter's gradient
};

/// The numbers of a tail, wherever it was reduced to. If it is on a GPU, the host waits for it here.
std::vector<double> numbers_in(const at::Tensor& tail);

/// Replaces the parameter's sparse gradient by the sum over ranks, divided by `divisor`: all ranks' indices and values
/// are gathered, and coalesced in rank order. Stays undefined where no rank has one. Collective.
void average_sparse(const at::Tensor& parameter, mpi::Collectives& collectives, int divisor);

/// The communication hook of a reducer, if it has one, and the reductions that the hook has started.
class HookSlot {
 public:
  /// @throws ConfigError  there is a hook already, `hook` is empty, or a step was run
  void set(CommHook hook, bool is_silent, bool has_stepped);

  bool has_hook() const noexcept { return static_cast<bool>(hook_); }
  /// Whether the hook sends nothing.
  bool is_silent() const noexcept { return is_silent_; }

  /// Passes bucket number `b` to the hook.
  void start(std::size_t b, const GradBucket& bucket);
  /// Waits for the hook's result for bucket number `b` and stores it in the bucket.
  /// @throws ConfigError  the result differs from the bucket in size or type
  void finish(std::size_t b, const GradBucket& bucket);

 private:
  CommHook hook_;
  bool is_silent_ = false;
  std::vector<Completion> completions_;  // completion of each bucket
};

/// The gradients of a model's parameters, and their way into buckets and back. Afterwards `.grad` is a view of its
/// bucket. Layers with a gradient sink write into the bucket directly.
class BucketedGradients {
 public:
  BucketedGradients(std::vector<NamedParameter> parameters, std::vector<ParameterSpec> specs);
  ~BucketedGradients();
  BucketedGradients(const BucketedGradients&) = delete;
  BucketedGradients& operator=(const BucketedGradients&) = delete;

  /// Allocates buckets with a tail of `tail_count` numbers. Gradients that lie in buckets already move into the new
  /// ones. Collective.
  void build(std::vector<Bucket> plan, std::size_t tail_count, mpi::Collectives& collectives);

  GradientBuckets& buckets() noexcept { return buckets_; }
  const GradientBuckets& buckets() const noexcept { return buckets_; }
  const std::vector<NamedParameter>& parameters() const noexcept { return parameters_; }
  const std::vector<ParameterSpec>& specs() const noexcept { return specs_; }
  std::size_t size() const noexcept { return parameters_.size(); }  ///< number of parameters
  bool is_sparse(std::size_t parameter) const { return specs_[parameter].is_sparse; }
  /// "parameter at index 3 ('fc.weight')"
  std::string cite(std::size_t parameter) const;

  /// Notes that a backward pass ran the parameter's gradient accumulator.
  /// @param has_gradient  false = autograd had nothing to accumulate, or a layer wrote the gradient by itself
  void note_use(std::size_t parameter, bool has_gradient);
  bool is_used(std::size_t parameter) const { return states_[parameter].is_used; }
  /// Begins a step.
  void begin_step();
  /// After a synchronized step: no parameter is used until a backward pass uses it.
  void clear_uses();

  /// Moves this rank's gradient into its bucket. Without a gradient, the bucket receives zeros.
  /// @throws ConfigError  the gradient is sparse where a dense one is expected, the reverse, or of another type
  void pack(std::size_t parameter);
  void pack_zero(std::size_t parameter);
  /// Assigns the average to `.grad`, multiplied by `factor` if it is not 1.
  void assign(std::size_t parameter, double factor);
  /// Restores a parameter without a gradient on any rank: `.grad` keeps the value from before the step.
  void restore_stale(std::size_t parameter);

 private:
  struct GradientState {
    bool is_used = false;    // a gradient came since the last synchronized step
    bool has_graph = false;  // its gradient belongs to a graph (create_graph) and stays apart from the bucket
    at::Tensor stale;        // the gradient from before a step that did not use the parameter on this rank
  };

  void attach_sinks();
  void detach_sinks();
  std::vector<at::Tensor> take_out();
  bool is_in_bucket(std::size_t parameter) const;

  std::vector<NamedParameter> parameters_;
  std::vector<ParameterSpec> specs_;
  GradientBuckets buckets_;
  std::vector<GradientState> states_;  // state of each parameter
  bool is_on_host_ = true;             // whether buckets and parameters are in host memory
  bool has_warned_of_graph_ = false;
};

}  // namespace lockstep::parallel
