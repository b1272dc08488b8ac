// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fake_gpu/runtime/submission.hpp"

namespace lockstep::fake_gpu {

struct Graph;

struct GraphNode {
  Submission submission;
  Graph* graph = nullptr;
  CallFrames site = nullptr;       ///< site where it was recorded
  std::vector<std::size_t> after;  ///< earlier nodes of the graph
  Timeline branch = 0;             ///< the timeline of the stream in which it was recorded
};

struct Graph {
  std::deque<GraphNode> nodes;  ///< addresses stay, because they are the handles of nodes
};

/// An instantiated graph. It has timelines of its own, because a captured stream is free for other work when it runs.
struct Executable {
  std::shared_ptr<const std::vector<GraphNode>> nodes;
  std::map<Timeline, Timeline> timelines;  ///< timelines of the branches
  Counters cost;
  std::uint64_t seed = 0;          ///< seed of the next launch
  std::optional<QueuePoint> last;  ///< the launch before, which the next one waits for
  VectorClock clock;
};

/// A graph that a capture has made.
void keep(std::unique_ptr<Graph> graph);

/// @return  null for a handle that is not valid
Graph* find_graph(cudaGraph_t handle);
Executable* find_executable(cudaGraphExec_t handle);

Executable& instantiate(const Graph& graph);

/// @return  what the caller destroys once it has let go of the lock, because work may hold resources
std::unique_ptr<Graph> take(Graph& graph);
std::unique_ptr<Executable> take(Executable& executable);

cudaError_t launch(Executable& executable, FakeStream& stream, Lock& lock);

/// An order of the nodes that respects `after`, random otherwise. Collectives stay in the order in which they were
/// recorded: each rank must take the same one.
std::vector<std::size_t> replay_order(const std::vector<GraphNode>& nodes, std::uint64_t seed);

}  // namespace lockstep::fake_gpu
