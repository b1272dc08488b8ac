// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/store/bucket_plan.hpp"
#include "parallel/store/named_parameter.hpp"
#include "parallel/sync/gradient_buckets.hpp"

namespace lockstep::parallel {

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
  bool take_sink_write(std::size_t parameter);
  void warn_of_graph();

  std::vector<NamedParameter> parameters_;
  std::vector<ParameterSpec> specs_;
  GradientBuckets buckets_;
  std::vector<GradientState> states_;  // state of each parameter
  bool is_on_host_ = true;             // whether buckets and parameters are in host memory
  bool has_warned_of_graph_ = false;
};

}  // namespace lockstep::parallel
