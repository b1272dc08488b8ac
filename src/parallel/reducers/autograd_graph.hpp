// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace torch::autograd {
struct Node;
}

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

}  // namespace lockstep::parallel
