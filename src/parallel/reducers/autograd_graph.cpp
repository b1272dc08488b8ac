// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/reducers/autograd_graph.hpp"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::parallel {

using torch::autograd::Node;

namespace {

/// The node where a backward from `root` begins: of a leaf, the accumulator of its gradient, if there is one.
Node* first_node(const at::Tensor& root) {
  if (!root.defined() || !root.requires_grad()) return nullptr;
  return root.grad_fn() ? root.grad_fn().get() : torch::autograd::impl::try_get_grad_accumulator(root).get();
}

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

}  // namespace lockstep::parallel
