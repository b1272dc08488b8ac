// SPDX-License-Identifier: BSD-3-Clause
#include "autograd_graph.hpp"

#include <unordered_set>

namespace lockstep::parallel {

std::vector<char> reachable_nodes(const std::vector<at::Tensor>& roots, const std::vector<NodeHandle>& nodes) {
  std::unordered_set<torch::autograd::Node*> seen;
  std::vector<torch::autograd::Node*> open;
  const auto visit = [&](torch::autograd::Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const at::Tensor& root : roots) {
    if (root.defined() && root.requires_grad()) visit(torch::autograd::impl::gradient_edge(root).function.get());
  }
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  std::vector<char> is_reached;
  for (const NodeHandle& node : nodes) is_reached.push_back(seen.contains(node.get()) ? 1 : 0);
  return is_reached;
}

}  // namespace lockstep::parallel
