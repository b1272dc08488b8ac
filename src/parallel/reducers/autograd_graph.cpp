// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/autograd_graph.hpp"

#include <lockstep/log/log.hpp>

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <memory>
#include <numeric>

#include "core/text/text_stream.hpp"

namespace lockstep::parallel {

using torch::autograd::Node;

namespace {

/// The node where a backward from `root` begins: of a leaf, the accumulator of its gradient, if there is one.
Node* first_node(const at::Tensor& root) {
  if (!root.defined() || !root.requires_grad()) return nullptr;
  return root.grad_fn() ? root.grad_fn().get() : torch::autograd::impl::try_get_grad_accumulator(root).get();
}

class AfterAccumulation : public torch::autograd::FunctionPostHook {
 public:
  AfterAccumulation(AccumulatorHooks::OnAccumulated on_accumulated, std::size_t parameter)
      : on_accumulated_(std::move(on_accumulated)), parameter_(parameter) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list& inputs) override {
    on_accumulated_(parameter_, !inputs.empty() && inputs[0].defined());
    return outputs;
  }

 private:
  AccumulatorHooks::OnAccumulated on_accumulated_;
  std::size_t parameter_;
};

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// The values that the context of the function keeps.
struct Listener : torch::CustomClassHolder {
  explicit Listener(std::function<void()> action) : on_backward(std::move(action)) {}
  std::function<void()> on_backward;
};

struct PassThrough : torch::autograd::Function<PassThrough> {
  /// Passed as a TensorList, tensors are inputs of the function; a vector would be a constant.
  static variable_list forward(AutogradContext* context, at::TensorList inputs,
                               const std::function<void()>* on_backward) {
    context->set_materialize_grads(false);
    context->saved_data["listener"] = c10::IValue::make_capsule(c10::make_intrusive<Listener>(*on_backward));
    variable_list outputs;
    for (const at::Tensor& input : inputs) outputs.push_back(input.clone());
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    c10::static_intrusive_pointer_cast<Listener>(context->saved_data["listener"].toCapsule())->on_backward();
    gradients.emplace_back();  // undefined gradient for the argument on_backward
    return gradients;
  }
};

constexpr std::size_t kNamesShown = 10;

}  // namespace

void AutogradGraph::collect(std::span<const at::Tensor> roots) {
  if (slots_.empty()) slots_.resize(1024);
  std::fill(slots_.begin(), slots_.end(), nullptr);
  size_ = 0;
  for (const at::Tensor& root : roots) {
    Node* const node = first_node(root);
    if (node != nullptr && insert(node)) to_visit_.push_back(node);
  }
  while (!to_visit_.empty()) {
    const Node* const node = to_visit_.back();
    to_visit_.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      Node* const next = edge.function.get();
      if (next != nullptr && insert(next)) to_visit_.push_back(next);
    }
  }
}

bool AutogradGraph::contains(const Node* node) const {
  return node != nullptr && !slots_.empty() && slots_[slot_of(node)] == node;
}

bool AutogradGraph::insert(Node* node) {
  const std::size_t slot = slot_of(node);
  if (slots_[slot] == node) return false;
  slots_[slot] = node;
  if (++size_ * 2 > slots_.size()) grow();
  return true;
}

std::size_t AutogradGraph::slot_of(const Node* node) const {
  // Fibonacci hashing: the upper bits of the product depend on all bits of the address.
  const auto product = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(node)) * 0x9E3779B97F4A7C15U;
  std::size_t slot = product >> (64 - std::countr_zero(slots_.size()));
  while (slots_[slot] != nullptr && slots_[slot] != node) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void AutogradGraph::grow() {
  std::vector<Node*> before(slots_.size() * 2);
  before.swap(slots_);
  for (Node* const node : before) {
    if (node != nullptr) slots_[slot_of(node)] = node;
  }
}

AccumulatorHooks::AccumulatorHooks(const std::vector<NamedParameter>& parameters, const OnAccumulated& on_accumulated) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::grad_accumulator(parameters[i].tensor));
    hooks_.push_back(accumulators_.back()->add_post_hook(std::make_unique<AfterAccumulation>(on_accumulated, i)));
  }
}

AccumulatorHooks::~AccumulatorHooks() {
  for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

std::vector<at::Tensor> pass_through(std::vector<at::Tensor> outputs, std::function<void()> on_backward) {
  variable_list live;
  for (const at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) live.push_back(output);
  }
  if (live.empty()) return outputs;
  const variable_list passed = PassThrough::apply(at::TensorList(live), &on_backward);
  std::size_t next = 0;
  for (at::Tensor& output : outputs) {
    if (output.defined() && output.requires_grad()) output = passed[next++];
  }
  return outputs;
}

void UnusedParameters::find(std::span<const at::Tensor> outputs, const std::vector<NodeHandle>& accumulators) {
  graph_.collect(outputs);
  for (std::size_t i = 0; i < is_unused_.size(); ++i) {
    is_unused_[i] = graph_.contains(accumulators[i].get()) ? char{0} : char{1};
  }
  if (first_unused_.empty()) first_unused_ = is_unused_;
  are_constant_ = are_constant_ && is_unused_ == first_unused_;
  const bool is_any_unused = std::find(is_unused_.begin(), is_unused_.end(), char{1}) != is_unused_.end();
  if (is_any_unused || std::exchange(has_warned_, true)) return;
  log::warning(
      "ddp.find_unused_parameters=true, but all parameters were used: disable it to avoid a traversal of the graph in "
      "every step");
}

void StaticGraph::begin_step() {
  for (Uses& uses : uses_) uses.in_step = 0;
}

void StaticGraph::learn_use(std::size_t parameter) {
  ++uses_[parameter].per_step;
  uses_[parameter].last = ++count_;
}

std::vector<std::size_t> StaticGraph::order_of_last_use() const {
  std::vector<std::size_t> order(uses_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto position = [this](std::size_t i) {
    return is_unused(i) ? std::numeric_limits<int>::max() : uses_[i].last;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&position](std::size_t a, std::size_t b) { return position(a) < position(b); });
  return order;
}

StaticGraph::Use StaticGraph::count_use(std::size_t parameter) {
  Uses& uses = uses_[parameter];
  ++uses.in_step;
  if (uses.in_step > uses.per_step) return Use::beyond;
  return uses.in_step == uses.per_step ? Use::last : Use::earlier;
}

std::string describe_missing(const std::vector<std::string>& missing_by_rank) {
  struct Missing {
    std::string name;
    std::string ranks;
  };
  std::map<std::size_t, Missing> by_index;
  for (std::size_t rank = 0; rank < missing_by_rank.size(); ++rank) {
    TextReader lines(missing_by_rank[rank]);
    std::size_t index = 0;
    for (std::string name; lines >> index >> name;) {
      Missing& missing = by_index[index];
      missing.name = name;
      missing.ranks += (missing.ranks.empty() ? "" : ", ") + std::to_string(rank);
    }
  }
  std::string text;
  std::size_t shown = 0;
  for (const auto& [index, missing] : by_index) {
    if (++shown > kNamesShown) break;
    const bool is_one = missing.ranks.find(',') == std::string::npos;
    text += (text.empty() ? "'" : "; '") + missing.name + "' (index " + std::to_string(index) + ") on rank" +
            (is_one ? " " : "s ") + missing.ranks;
  }
  if (by_index.size() > kNamesShown) text += "; and " + std::to_string(by_index.size() - kNamesShown) + " more";
  return text;
}

std::string remedy_of_missing(const ReducerOptions& promises) {
  if (promises.has_static_graph) {
    return "this is not compatible with a static graph, which uses the same parameters in every step; set "
           "ddp.static_graph=false";
  }
  if (promises.finds_unused) return "all outputs of forward must contribute to the loss";
  return "all outputs of forward must contribute to the loss on every rank; set ddp.find_unused_parameters=true if the "
         "loss does not use every parameter, or set requires_grad=false for parameters that are not trained";
}

std::vector<std::string> anomalous_parameters(const std::vector<at::Tensor>& losses,
                                              const std::vector<NamedParameter>& parameters) {
  AutogradGraph graph;
  graph.collect(losses);
  std::vector<std::string> names;
  for (const NamedParameter& parameter : parameters) {
    if (!parameter.tensor.requires_grad()) continue;
    // Null when no living graph has the parameter.
    const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(parameter.tensor);
    if (!graph.contains(accumulator.get())) names.push_back(parameter.name);
  }
  return names;
}

}  // namespace lockstep::parallel
