// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/parallel/ddp_options.hpp>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/store/named_parameter.hpp"

namespace lockstep::parallel {

/// The nodes of autograd's graph from which some tensors came. A graph may be of any depth. Memory is kept from one use
/// to the next, so in steady state nothing is allocated.
class AutogradGraph {
 public:
  /// Collects all nodes that a backward from `roots` can reach; those of an earlier call are forgotten. Tensors without
  /// a history reach nothing. Takes 5 to 60 ns per node, by how much of the graph is in cache.
  void collect(std::span<const at::Tensor> roots);

  /// Whether the last collect reached the node. It must not have been destroyed since: another one could be there.
  bool contains(const torch::autograd::Node* node) const;

  std::size_t size() const noexcept { return size_; }  ///< nodes reached

 private:
  bool insert(torch::autograd::Node* node);
  std::size_t slot_of(const torch::autograd::Node* node) const;
  void grow();

  std::vector<torch::autograd::Node*> slots_;  // open addressing; a power of two, at most half of them taken
  std::vector<torch::autograd::Node*> to_visit_;
  std::size_t size_ = 0;
};

using NodeHandle = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));

/// Hooks on the gradient accumulators of parameters, for its own lifetime.
class AccumulatorHooks {
 public:
  /// Called for every run of a parameter's gradient accumulator, after it has run.
  /// @param has_gradient  false where autograd had nothing to accumulate, or a layer wrote the gradient by itself
  using OnAccumulated = std::function<void(std::size_t parameter, bool has_gradient)>;

  AccumulatorHooks(const std::vector<NamedParameter>& parameters, const OnAccumulated& on_accumulated);
  ~AccumulatorHooks();
  AccumulatorHooks(const AccumulatorHooks&) = delete;
  AccumulatorHooks& operator=(const AccumulatorHooks&) = delete;

  /// The accumulators, in the order of the parameters.
  const std::vector<NodeHandle>& nodes() const noexcept { return accumulators_; }

 private:
  // A parameter holds its accumulator weakly: without these references the hooks would vanish.
  std::vector<NodeHandle> accumulators_;
  std::vector<std::uintptr_t> hooks_;
};

/// Copies of the outputs whose backward passes on what comes, undefined gradients included, so that a part of the graph
/// that the loss ignores still runs. Tensors that need no gradient come back as they are.
/// @param on_backward  called when the backward pass enters the graph through these outputs
std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs, std::function<void()> on_backward);

/// Finds the parameters on which the outputs of a forward do not depend. Not collective.
class UnusedParameters {
 public:
  /// @param parameters  the number of parameters
  explicit UnusedParameters(std::size_t parameters) : is_unused_(parameters) {}

  /// Walks the graph of `outputs`. Warns once if every parameter is used.
  /// @param accumulators  the gradient accumulators, by parameter
  void find(std::span<const at::Tensor> outputs, const std::vector<NodeHandle>& accumulators);
  /// Begins a step: no parameter is known to be unused.
  void clear() { is_unused_.assign(is_unused_.size(), 0); }

  bool contains(std::size_t parameter) const { return is_unused_[parameter] != 0; }
  /// Whether every call of find so far found the same parameters.
  bool are_constant() const noexcept { return are_constant_; }

 private:
  AutogradGraph graph_;
  std::vector<char> is_unused_;     // one flag for each parameter
  std::vector<char> first_unused_;  // result of the first call of find
  bool are_constant_ = true;
  bool has_warned_ = false;
};

/// Learns in one step how often the graph uses each parameter, and determines in later steps when a gradient is
/// complete.
/// Not collective.
class StaticGraph {
 public:
  /// @param parameters  the number of parameters
  explicit StaticGraph(std::size_t parameters) : uses_(parameters) {}

  /// Begins a step that follows the one from which the graph was learned.
  void begin_step();
  /// Forgets what was learned.
  void forget() { uses_.assign(uses_.size(), Uses()); }

  /// Notes a use in the step from which the graph is learned.
  void learn_use(std::size_t parameter);
  /// All parameters in the order of their last use in that step. Unused ones come last.
  std::vector<std::size_t> order_of_last_use() const;
  bool is_unused(std::size_t parameter) const { return uses_[parameter].per_step == 0; }

  /// The position of a use among the uses of a parameter in one step. Beyond: there were fewer in the learned step.
  enum class Use { earlier, last, beyond };
  /// Counts a use in a later step.
  Use count_use(std::size_t parameter);

 private:
  struct Uses {
    int in_step = 0;   // so far, in this step
    int per_step = 0;  // number of uses in each step, as learned
    int last = 0;      // position of the last use among all uses of the learned step
  };
  std::vector<Uses> uses_;  // uses of each parameter
  int count_ = 0;           // uses of all parameters, while they are learned
};

/// Says which parameters got no gradient on which ranks: "'a' (index 0) on ranks 0, 2; 'b' (index 4) on rank 1".
/// @param missing_by_rank  of every rank, one line "index name" for each parameter
std::string describe_missing(const std::vector<std::string>& missing_by_rank);

/// The remedy, by what the user promised of the graph.
std::string remedy_of_missing(const ReducerOptions& promises);

/// The trained parameters that lie outside the graphs of all the losses: not used in forward, or used for something
/// that does not reach a loss. They get no gradient, which a wrapper without find_unused_parameters takes for a
/// mistake.
///
/// The same before and after backward, as long as the losses live. A loss without a history (a constant, a leaf) has no
/// parameter in its graph. Not collective.
/// @param parameters  frozen ones are never reported
/// @return            names, in the order of `parameters`
std::vector<std::string> anomalous_parameters(const std::vector<at::Tensor>& losses,
                                              const std::vector<NamedParameter>& parameters);

}  // namespace lockstep::parallel
