// SPDX-License-Identifier: BSD-3-Clause
#include "models/recompute.hpp"

#include <lockstep/core/error.hpp>

#include <ATen/Context.h>
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

namespace lockstep::models {

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

thread_local const Block* recomputed_block = nullptr;

/// What a forward depends on beside its input and parameters: random numbers and autocast.
class Surroundings {
 public:
  static Surroundings now(c10::Device device) {
    Surroundings result;
    result.generators_.push_back(at::globalContext().defaultGenerator(at::kCPU));
    if (!device.is_cpu()) result.generators_.push_back(at::globalContext().defaultGenerator(device));
    for (at::Generator& generator : result.generators_) {
      const std::lock_guard<std::mutex> hold(generator.mutex());
      result.states_.push_back(generator.get_state());
    }
    result.device_type_ = device.type();
    result.casts_ = at::autocast::is_autocast_enabled(device.type());
    result.cast_type_ = at::autocast::get_autocast_dtype(device.type());
    return result;
  }

  void establish() const {
    for (std::size_t i = 0; i < generators_.size(); ++i) {
      at::Generator generator = generators_[i];
      const std::lock_guard<std::mutex> hold(generator.mutex());
      generator.set_state(states_[i]);
    }
    at::autocast::set_autocast_enabled(device_type_, casts_);
    at::autocast::set_autocast_dtype(device_type_, cast_type_);
  }

  c10::Device device() const { return generators_.back().device(); }

 private:
  std::vector<at::Generator> generators_;
  std::vector<at::Tensor> states_;
  c10::DeviceType device_type_ = at::kCPU;
  bool casts_ = false;
  at::ScalarType cast_type_ = at::kFloat;
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
at::Tensor run_again(Block& block, const at::Tensor& input, const Surroundings& surroundings) {
  struct Restore {
    Surroundings surroundings;
    const Block* block;
    ~Restore() {
      surroundings.establish();
      recomputed_block = block;
    }
  };
  const Restore restore{Surroundings::now(surroundings.device()), std::exchange(recomputed_block, &block)};
  const NoAutocastCache no_cache;
  const torch::AutoGradMode with_gradients(true);
  surroundings.establish();
  return run(block, input);
}

/// Base of both modes; the derived classes form the gradients of the node's inputs.
class RecomputeBackward : public Node {
 public:
  RecomputeBackward(torch::autograd::edge_list next, Block& block, const at::Tensor& input, Surroundings surroundings)
      : Node(std::move(next)),
        block_(block),
        owner_(block.weak_from_this().lock()),
        input_(input, /*is_output=*/false),
        surroundings_(std::move(surroundings)) {}

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!gradients[0].defined()) return variable_list(num_outputs());
    if (at::GradMode::is_enabled()) {
      throw ConfigError("block '" + path() + "' is recomputed and has no second derivative");
    }
    // A leaf of its own: what lies before the block must not be reached, or a weight that is used there, too, would get
    // that part of its gradient twice.
    const at::Tensor input = input_.unpack();
    return input_gradients(gradients[0], input.detach().requires_grad_(input.requires_grad()));
  }

  void release_variables() override {
    const std::lock_guard<std::mutex> hold(mutex_);
    input_.reset_data();
  }

 protected:
  /// @param input  a leaf
  virtual variable_list input_gradients(const at::Tensor& output_gradient, const at::Tensor& input) = 0;

  at::Tensor forward_again(const at::Tensor& input) { return run_again(block_, input, surroundings_); }
  const std::string& path() const { return block_.path(); }

 private:
  Block& block_;
  std::shared_ptr<torch::nn::Module> owner_;  // keeps the block alive; null if nobody shares it
  SavedVariable input_;
  Surroundings surroundings_;
};

class ReentrantBackward : public RecomputeBackward {
 public:
  using RecomputeBackward::RecomputeBackward;

  std::string name() const override { return "ReentrantRecomputeBackward"; }

 protected:
  variable_list input_gradients(const at::Tensor& output_gradient, const at::Tensor& input) override {
    const auto* const wanted = torch::autograd::get_current_graph_task_exec_info();
    if (wanted != nullptr && !wanted->empty()) {
      throw ConfigError("block '" + path() +
                        "' is recomputed in the reentrant way, which cannot form certain gradients only; recompute it "
                        "in the plain one");
    }
    const at::Tensor output = forward_again(input);
    if (output.requires_grad()) torch::autograd::backward({output}, {output_gradient});
    return {input.grad()};
  }
};

class PlainBackward : public RecomputeBackward {
 public:
  PlainBackward(torch::autograd::edge_list next, Block& block, const at::Tensor& input, Surroundings surroundings,
                variable_list parameters)
      : RecomputeBackward(std::move(next), block, input, std::move(surroundings)), parameters_(std::move(parameters)) {}

  std::string name() const override { return "RecomputeBackward"; }

 protected:
  variable_list input_gradients(const at::Tensor& output_gradient, const at::Tensor& input) override {
    const at::Tensor output = forward_again(input);
    variable_list result(num_outputs());
    if (!output.requires_grad()) return result;
    require_own_parameters(output, input);
    variable_list wanted;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < num_outputs(); ++i) {
      if (!task_should_compute_output(i)) continue;
      wanted.push_back(i == 0 ? input : parameters_[i - 1]);
      places.push_back(i);
    }
    const variable_list found = torch::autograd::grad({output}, wanted, {output_gradient}, /*retain_graph=*/false,
                                                      /*create_graph=*/false, /*allow_unused=*/true);
    for (std::size_t k = 0; k < places.size(); ++k) result[places[k]] = found[k];
    return result;
  }

 private:
  /// A trained tensor that is not among the inputs of this node would silently get no gradient.
  void require_own_parameters(const at::Tensor& output, const at::Tensor& input) const {
    std::unordered_set<const Node*> seen;
    std::vector<const Node*> to_visit = {output.grad_fn().get()};
    while (!to_visit.empty()) {
      const Node* const node = to_visit.back();
      to_visit.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(node)) {
        const auto is_leaf = [leaf](const at::Tensor& tensor) { return tensor.is_same(leaf->variable); };
        if (!is_leaf(input) && std::none_of(parameters_.begin(), parameters_.end(), is_leaf)) {
          throw ConfigError("block '" + path() +
                            "' uses a trained tensor that is not among its parameters; recompute it in the reentrant "
                            "way, or a block that has them all");
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

/// @param next  runs the block the first time
at::Tensor recompute_through(Block& block, const at::Tensor& input, RecomputeMode mode,
                             const std::function<at::Tensor(const at::Tensor&)>& next) {
  if (!at::GradMode::is_enabled()) return next(input);
  variable_list parameters = trained_parameters_of(block);
  if (!input.requires_grad() && parameters.empty()) return next(input);
  Surroundings surroundings = Surroundings::now(input.device());
  at::Tensor output;
  {
    const NoAutocastCache no_cache;
    const torch::NoGradGuard no_grad;
    output = next(input);
    // A tensor of its own, on which history can be set: blocks may return their input, or views.
    output = output.is_alias_of(input) ? output.clone() : output.variable_data();
  }
  std::shared_ptr<Node> node;
  if (mode == RecomputeMode::reentrant) {
    node.reset(new ReentrantBackward(torch::autograd::collect_next_edges(input), block, input, std::move(surroundings)),
               torch::autograd::deleteNode);
  } else {
    torch::autograd::edge_list next_edges = torch::autograd::collect_next_edges(input, parameters);
    node.reset(new PlainBackward(std::move(next_edges), block, input, std::move(surroundings), std::move(parameters)),
               torch::autograd::deleteNode);
  }
  torch::autograd::set_history(output, node);
  return output;
}

}  // namespace

at::Tensor recompute(Block& block, const at::Tensor& input, RecomputeMode mode) {
  return recompute_through(block, input, mode, [&block](const at::Tensor& inner) { return run(block, inner); });
}

Tap recompute_tap(const Block& model, const std::vector<std::string>& patterns, RecomputeMode mode) {
  const std::vector<const Block*> matching = matching_blocks(model, patterns, "model.recompute");
  const std::unordered_set<const Block*> chosen(matching.begin(), matching.end());
  return [chosen, mode](Block& block, const at::Tensor& input, const auto& next) {
    const bool is_first_run = &block != recomputed_block;
    return is_first_run && chosen.contains(&block) ? recompute_through(block, input, mode, next) : next(input);
  };
}

bool is_recomputing() noexcept { return recomputed_block != nullptr; }

}  // namespace lockstep::models
