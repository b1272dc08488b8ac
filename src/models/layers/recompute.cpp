// SPDX-License-Identifier: BSD-3-Clause
#include "models/layers/recompute.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "models/layers/generators.hpp"
#include "models/layers/taps.hpp"

namespace lockstep::models {

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local const Block* recomputed_block = nullptr;

/// The state that a forward depends on in addition to its inputs and parameters: taps, random numbers and autocast.
class Surroundings {
 public:
  /// The states as they are now.
  explicit Surroundings(c10::Device device)
      : taps_(active_taps()),
        draws_(GeneratorStates::now(device)),
        casts_(at::autocast::is_autocast_enabled(device.type())),
        cast_type_(at::autocast::get_autocast_dtype(device.type())) {}

  void establish() const {
    draws_.establish();
    at::autocast::set_autocast_enabled(device().type(), casts_);
    at::autocast::set_autocast_dtype(device().type(), cast_type_);
  }

  c10::Device device() const noexcept { return draws_.device(); }
  const std::vector<Tap>& taps() const noexcept { return taps_; }

 private:
  std::vector<Tap> taps_;
  GeneratorStates draws_;
  bool casts_;
  at::ScalarType cast_type_;
};

/// Casts of parameters made without a graph must not be found by a forward that needs one, and the other way round.
class NoAutocastCache {
 public:
  NoAutocastCache() : before_(at::autocast::is_autocast_cache_enabled()) {
    at::autocast::set_autocast_cache_enabled(false);
  }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool before_;
};

/// Runs the block with gradients and in the given surroundings, which are then put back.
Tensors run_again(Block& block, const Tensors& inputs, const Surroundings& surroundings) {
  struct Restore {
    Surroundings surroundings;
    const Block* block;
    ~Restore() {
      surroundings.establish();
      recomputed_block = block;
    }
  };
  const Restore restore{Surroundings(surroundings.device()), std::exchange(recomputed_block, &block)};
  const NoAutocastCache no_cache;
  const ScopedTaps same_taps(surroundings.taps());
  const torch::AutoGradMode with_gradients(true);
  surroundings.establish();
  return run(block, inputs);
}

/// The outputs that have a history and a gradient, and these gradients.
struct Roots {
  variable_list outputs;
  variable_list gradients;
};

Roots roots_of(const Tensors& outputs, const variable_list& gradients) {
  Roots roots;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].defined() || !outputs[i].requires_grad() || !gradients[i].defined()) continue;
    roots.outputs.push_back(outputs[i]);
    roots.gradients.push_back(gradients[i]);
  }
  return roots;
}

/// Base of both modes; the derived classes form the gradients of the node's inputs.
class RecomputeBackward : public Node {
 public:
  RecomputeBackward(torch::autograd::edge_list next, Block& block, const Tensors& inputs, Surroundings surroundings)
      : Node(std::move(next)),
        block_(block),
        owner_(block.weak_from_this().lock()),
        surroundings_(std::move(surroundings)) {
    for (const at::Tensor& input : inputs) inputs_.emplace_back(input, /*is_output=*/false);
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    const bool is_needed = std::any_of(gradients.begin(), gradients.end(), [](const auto& g) { return g.defined(); });
    if (!is_needed) return variable_list(num_outputs());
    if (at::GradMode::is_enabled()) {
      throw ConfigError("block '" + path() + "' is recomputed and does not support second derivatives");
    }
    // Leaves of their own: what lies before the block must not be reached, or a weight that is used there, too, would
    // get that part of its gradient twice.
    Tensors leaves;
    for (const SavedVariable& saved : inputs_) {
      const at::Tensor input = saved.unpack();
      leaves.push_back(input.defined() ? input.detach().requires_grad_(input.requires_grad()) : input);
    }
    return input_gradients(gradients, leaves);
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    for (SavedVariable& input : inputs_) input.reset_data();
  }

 protected:
  /// @param output_gradients  undefined where an output went unused
  /// @param inputs            leaves
  virtual variable_list input_gradients(const variable_list& output_gradients, const Tensors& inputs) = 0;

  Tensors forward_again(const Tensors& inputs) { return run_again(block_, inputs, surroundings_); }
  const std::string& path() const { return block_.path(); }

 private:
  Block& block_;
  std::shared_ptr<torch::nn::Module> owner_;  // keeps the block alive; null if nobody shares it
  std::vector<SavedVariable> inputs_;
  Surroundings surroundings_;
};

class ReentrantBackward : public RecomputeBackward {
 public:
  using RecomputeBackward::RecomputeBackward;

  std::string name() const override { return "ReentrantRecomputeBackward"; }

 protected:
  variable_list input_gradients(const variable_list& output_gradients, const Tensors& inputs) override {
    const auto* const wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted != nullptr && !wanted->empty()) {
      throw ConfigError(
          "block '" + path() +
          "' is recomputed in reentrant mode, which does not support gradients of selected inputs; use the plain mode");
    }
    const Roots roots = roots_of(forward_again(inputs), output_gradients);
    if (!roots.outputs.empty()) torch::autograd::backward(roots.outputs, roots.gradients);
    variable_list gradients;
    for (const at::Tensor& input : inputs) gradients.push_back(input.defined() ? input.grad() : at::Tensor());
    return gradients;
  }
};

class PlainBackward : public RecomputeBackward {
 public:
  PlainBackward(torch::autograd::edge_list next, Block& block, const Tensors& inputs, Surroundings surroundings,
                variable_list parameters)
      : RecomputeBackward(std::move(next), block, inputs, std::move(surroundings)),
        parameters_(std::move(parameters)) {}

  std::string name() const override { return "RecomputeBackward"; }

 protected:
  variable_list input_gradients(const variable_list& output_gradients, const Tensors& inputs) override {
    const Roots roots = roots_of(forward_again(inputs), output_gradients);
    variable_list result(num_outputs());
    if (roots.outputs.empty()) return result;
    require_own_parameters(roots.outputs, inputs);
    variable_list wanted;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < num_outputs(); ++i) {
      if (!task_should_compute_output(i)) continue;
      const at::Tensor& each = i < inputs.size() ? inputs[i] : parameters_[i - inputs.size()];
      if (!each.defined() || !each.requires_grad()) continue;
      wanted.push_back(each);
      places.push_back(i);
    }
    const variable_list found = torch::autograd::grad(roots.outputs, wanted, roots.gradients, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t k = 0; k < places.size(); ++k) result[places[k]] = found[k];
    return result;
  }

 private:
  /// A trained tensor that is not among the inputs of this node would silently get no gradient.
  void require_own_parameters(const variable_list& outputs, const Tensors& inputs) const {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> to_visit;
    for (const at::Tensor& output : outputs) to_visit.push_back(output.grad_fn().get());
    while (!to_visit.empty()) {
      const Node* const node = to_visit.back();
      to_visit.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
        const auto is_leaf = [leaf](const at::Tensor& tensor) { return tensor.is_same(leaf->variable); };
        if (std::none_of(inputs.begin(), inputs.end(), is_leaf) &&
            std::none_of(parameters_.begin(), parameters_.end(), is_leaf)) {
          throw ConfigError("block '" + path() +
                            "' uses a trained tensor that is not one of its parameters; use reentrant mode, or "
                            "recompute a block that contains them all");
        }
      }
      for (const torch::autograd::Edge& edge : node->next_edges()) to_visit.push_back(edge.function.get());
    }
  }

  variable_list parameters_;
};

/// The block's trained parameters, each once, under however many names.
variable_list trained_parameters_of(const Block& block) {
  variable_list parameters;
  for (const at::Tensor& parameter : block.parameters()) {
    const auto is_this = [&parameter](const at::Tensor& other) { return other.is_same(parameter); };
    const bool is_known = std::any_of(parameters.begin(), parameters.end(), is_this);
    if (parameter.requires_grad() && !is_known) parameters.push_back(parameter);
  }
  return parameters;
}

/// Tensors of their own, on which history can be set: blocks may return their inputs, or views, or one tensor twice.
void detach_from(Tensors& outputs, const Tensors& inputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    at::Tensor& output = outputs[i];
    if (!output.defined()) continue;
    const auto is_alias = [&output](const at::Tensor& other) { return other.defined() && output.is_alias_of(other); };
    const bool is_shared = std::any_of(inputs.begin(), inputs.end(), is_alias) ||
                           std::any_of(outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(i), is_alias);
    output = is_shared ? output.clone() : output.variable_data();
  }
}

c10::Device device_of(const Tensors& inputs, const variable_list& parameters) {
  for (const at::Tensor& input : inputs) {
    if (input.defined()) return input.device();
  }
  return parameters.empty() ? c10::Device(c10::kCPU) : parameters.front().device();
}

/// @param next  runs the block the first time
Tensors recompute_through(Block& block, const Tensors& inputs, RecomputeMode mode, const Forward& next) {
  if (!at::GradMode::is_enabled()) return next(inputs);
  variable_list parameters = trained_parameters_of(block);
  const bool is_watched =
      std::any_of(inputs.begin(), inputs.end(), [](const auto& t) { return t.defined() && t.requires_grad(); });
  if (!is_watched && parameters.empty()) return next(inputs);
  Surroundings surroundings(device_of(inputs, parameters));
  Tensors outputs;
  {
    const NoAutocastCache no_cache;
    const torch::NoGradGuard no_grad;
    outputs = next(inputs);
    detach_from(outputs, inputs);
  }
  std::shared_ptr<Node> node;
  if (mode == RecomputeMode::reentrant) {
    node.reset(
        new ReentrantBackward(torch::autograd::collect_next_edges(inputs), block, inputs, std::move(surroundings)),
        torch::autograd::deleteNode);
  } else {
    torch::autograd::edge_list next_edges = torch::autograd::collect_next_edges(inputs, parameters);
    node.reset(new PlainBackward(std::move(next_edges), block, inputs, std::move(surroundings), std::move(parameters)),
               torch::autograd::deleteNode);
  }
  for (const at::Tensor& output : outputs) {
    if (output.defined() && torch::autograd::isDifferentiableType(output.scalar_type())) {
      torch::autograd::set_history(output, node);
    } else {
      node->add_input_metadata(Node::undefined_input());  // keeps the place of the others' gradients
    }
  }
  return outputs;
}

}  // namespace

at::Tensor recompute(Block& block, const at::Tensor& input, RecomputeMode mode) {
  return recompute(block, Tensors{input}, mode).front();
}

Tensors recompute(Block& block, const Tensors& inputs, RecomputeMode mode) {
  return recompute_through(block, inputs, mode, [&block](const Tensors& inner) { return run(block, inner); });
}

Tap recompute_tap(const Block& model, const std::vector<std::string>& patterns, RecomputeMode mode) {
  const std::vector<const Block*> matching = matching_blocks(model, patterns, "model.recompute");
  const auto chosen = std::make_shared<std::unordered_set<const Block*>>(matching.begin(), matching.end());
  return [chosen, mode](Block& block, const Tensors& inputs, const Forward& next) {
    const bool is_first_run = &block != recomputed_block;
    return is_first_run && chosen->contains(&block) ? recompute_through(block, inputs, mode, next) : next(inputs);
  };
}

bool is_recomputing() noexcept { return recomputed_block != nullptr; }

}  // namespace lockstep::models
