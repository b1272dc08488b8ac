// SPDX-License-Identifier: BSD-3-Clause
// Graphs, which captures make.
#include "fake_gpu/runtime/exported.hpp"
#include "fake_gpu/runtime/graphs.hpp"

namespace lockstep::fake_gpu {

namespace {

Graph* graph_of(cudaGraph_t handle) { return reinterpret_cast<Graph*>(handle); }

/// Fills an array of the caller, or says how long it must be.
void fill(const std::vector<cudaGraphNode_t>& nodes, cudaGraphNode_t* array, std::size_t* size) {
  if (array != nullptr) {
    for (std::size_t i = 0; i < *size; ++i) array[i] = i < nodes.size() ? nodes[i] : nullptr;
  }
  *size = array != nullptr ? std::min(*size, nodes.size()) : nodes.size();
}

cudaError_t make_executable(cudaGraphExec_t* executable, cudaGraph_t graph) {
  return locked([&](Lock&) {
    const Graph* const found = find_graph(graph);
    if (found == nullptr) return cudaErrorInvalidValue;
    *executable = handle_of<cudaGraphExec_t>(instantiate(*found));
    return device_status();
  });
}

}  // namespace

}  // namespace lockstep::fake_gpu

using namespace lockstep::fake_gpu;

extern "C" {

[[gnu::visibility("default")]] cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                                unsigned long long) {
  return make_executable(executable, graph);
}

[[gnu::visibility("default")]] cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                                                         unsigned long long) {
  return make_executable(executable, graph);
}

[[gnu::visibility("default")]] cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return with_stream(stream, [executable](FakeStream& found, Lock& lock) {
    Executable* const valid = find_executable(executable);
    return valid != nullptr ? launch(*valid, found, lock) : cudaErrorInvalidValue;
  });
}

// A launch that is not over yet keeps the nodes.
[[gnu::visibility("default")]] cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  std::unique_ptr<Executable> destroyed;
  return locked([&](Lock&) {
    Executable* const valid = find_executable(executable);
    if (valid == nullptr) return cudaErrorInvalidValue;
    destroyed = take(*valid);
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  std::unique_ptr<Graph> destroyed;
  return locked([&](Lock&) {
    Graph* const valid = find_graph(graph);
    if (valid == nullptr) return cudaErrorInvalidValue;
    destroyed = take(*valid);
    return cudaSuccess;
  });
}

// Also for the graph of a capture that has not ended.
[[gnu::visibility("default")]] cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* array,
                                                             std::size_t* count) {
  if (graph == nullptr || count == nullptr) return noted(cudaErrorInvalidValue);
  return locked([&](Lock&) {
    std::vector<cudaGraphNode_t> nodes;
    for (GraphNode& node : graph_of(graph)->nodes) nodes.push_back(handle_of<cudaGraphNode_t>(node));
    fill(nodes, array, count);
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* array,
                                                                        cudaGraphEdgeData* edges, std::size_t* count) {
  if (node == nullptr || count == nullptr) return noted(cudaErrorInvalidValue);
  return locked([&](Lock&) {
    const auto& found = *reinterpret_cast<const GraphNode*>(node);
    std::vector<cudaGraphNode_t> nodes;
    for (const std::size_t earlier : found.after)
      nodes.push_back(handle_of<cudaGraphNode_t>(found.graph->nodes[earlier]));
    fill(nodes, array, count);
    for (std::size_t i = 0; edges != nullptr && i < *count; ++i) edges[i] = {};
    return cudaSuccess;
  });
}

[[gnu::visibility("default")]] cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) {
  return noted(cudaErrorNotSupported);
}

}  // extern "C"
