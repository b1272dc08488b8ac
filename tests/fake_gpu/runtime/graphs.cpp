// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/graphs.hpp"

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "fake_gpu/runtime/capture.hpp"
#include "fake_gpu/runtime/counters.hpp"
#include "fake_gpu/runtime/faults.hpp"
#include "fake_gpu/runtime/report.hpp"
#include "fake_gpu/runtime/settings.hpp"

namespace lockstep::fake_gpu {

namespace {

struct Graphs {
  std::set<Graph*> graphs;
  std::set<Executable*> executables;
  std::uint64_t instantiated = 0;
};

Graphs& live() {
  static Graphs& only = *new Graphs;
  return only;
}

bool is_collective(const GraphNode& node) { return node.submission.cost.nccl_calls > 0; }

/// Ranks that start collectives of two communicators in different orders can wait for each other forever, and a graph
/// may start nodes in any order that its edges allow.
void require_order_of_collectives(const std::vector<GraphNode>& nodes) {
  constexpr std::size_t kNone = 0;  // else one more than the number of a node
  std::vector<std::size_t> behind(nodes.size(), kNone);
  std::size_t last = kNone;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    for (const std::size_t earlier : nodes[i].after) behind[i] = std::max(behind[i], behind[earlier]);
    if (!is_collective(nodes[i])) continue;
    if (behind[i] != last) {
      report("a graph has '" + std::string(nodes[last - 1].submission.name) + "' and '" + nodes[i].submission.name +
             "' of different communicators, and no edge orders the two");
      print(nodes[last - 1].site);
      print(nodes[i].site);
      end_process();
    }
    behind[i] = last = i + 1;
  }
}

/// Launches of kernels are the graph's: it is one launch.
Counters cost_of(const std::vector<GraphNode>& nodes) {
  Counters cost;
  for (const GraphNode& node : nodes) add(cost, node.submission.cost);
  cost.launches = 1;
  return cost;
}

/// Nodes that must be replayed before each node.
std::vector<std::vector<std::size_t>> predecessors(const std::vector<GraphNode>& nodes) {
  std::vector<std::vector<std::size_t>> before;
  std::optional<std::size_t> last_collective;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    before.push_back(nodes[i].after);
    if (!is_collective(nodes[i])) continue;
    if (last_collective) before[i].push_back(*last_collective);
    last_collective = i;
  }
  return before;
}

/// Each node's accesses are checked with what is before that node in this launch, and before the launch.
/// @return  what is before the operation after the graph
VectorClock check_nodes(Executable& executable, const VectorClock& begin) {
  VectorClock end = begin;
  std::vector<VectorClock> clocks;
  for (const GraphNode& node : *executable.nodes) {
    VectorClock clock = begin;
    for (const std::size_t earlier : node.after) clock.join(clocks[earlier]);
    const Access access{next_stamp(executable.timelines.at(node.branch), clock), node.submission.name, node.site};
    check_accesses(node.submission.ranges, access, clock);
    end.raise(access.stamp);
    clocks.push_back(std::move(clock));
  }
  return end;
}

void replay(const std::vector<GraphNode>& nodes, std::uint64_t seed) {
  for (const std::size_t index : replay_order(nodes, seed)) {
    const Submission& submission = nodes[index].submission;
    try {
      if (submission.work) submission.work();
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + std::string(submission.name) + "': " + error.what());
    }
  }
}

}  // namespace

void keep(std::unique_ptr<Graph> graph) { live().graphs.insert(graph.release()); }

Graph* find_graph(cudaGraph_t handle) {
  auto* const graph = reinterpret_cast<Graph*>(handle);
  return live().graphs.count(graph) > 0 ? graph : nullptr;
}

Executable* find_executable(cudaGraphExec_t handle) {
  auto* const executable = reinterpret_cast<Executable*>(handle);
  return live().executables.count(executable) > 0 ? executable : nullptr;
}

Executable& instantiate(const Graph& graph) {
  auto* const made = new Executable;
  made->nodes = std::make_shared<const std::vector<GraphNode>>(graph.nodes.begin(), graph.nodes.end());
  require_order_of_collectives(*made->nodes);
  made->cost = cost_of(*made->nodes);
  made->seed = settings().seed + (++live().instantiated << 32);
  for (const GraphNode& node : *made->nodes) {
    if (made->timelines.count(node.branch) == 0) made->timelines[node.branch] = new_timeline();
  }
  live().executables.insert(made);
  return *made;
}

std::unique_ptr<Graph> take(Graph& graph) {
  live().graphs.erase(&graph);
  return std::unique_ptr<Graph>(&graph);
}

std::unique_ptr<Executable> take(Executable& executable) {
  live().executables.erase(&executable);
  return std::unique_ptr<Executable>(&executable);
}

cudaError_t launch(Executable& executable, FakeStream& stream, Lock& lock) {
  if (const cudaError_t refusal = refuse_use(stream); refusal != cudaSuccess) return refusal;
  if (stream.capture) return refuse_call(stream);
  std::vector<QueuePoint> after = order_next(stream);
  if (executable.last) after.push_back(*executable.last);
  stream.clock.join(executable.clock);
  stream.clock = executable.clock = check_nodes(executable, stream.clock);
  count(executable.cost);
  trace("stream " + std::to_string(stream.timeline) + ": graph of " + std::to_string(executable.nodes->size()) +
        " nodes");
  Work work = [nodes = executable.nodes, seed = executable.seed++] { replay(*nodes, seed); };
  if (is_due(PlannedFault::sticky)) work = fail_by_plan;
  executable.last = QueuePoint{.queue = &stream.queue, .index = stream.queue.queued + 1};
  push(stream.queue, {.name = "graph", .work = std::move(work), .after = std::move(after), .is_over_at = nullptr},
       lock);
  return cudaSuccess;
}

std::vector<std::size_t> replay_order(const std::vector<GraphNode>& nodes, std::uint64_t seed) {
  const std::vector<std::vector<std::size_t>> before = predecessors(nodes);
  std::vector<std::vector<std::size_t>> followers(nodes.size());
  std::vector<std::size_t> open(nodes.size());  // predecessors that are not replayed yet
  std::vector<std::size_t> ready;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    open[i] = before[i].size();
    for (const std::size_t earlier : before[i]) followers[earlier].push_back(i);
    if (open[i] == 0) ready.push_back(i);
  }
  std::mt19937_64 random(seed);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    const std::size_t next = ready.back();
    ready.pop_back();
    order.push_back(next);
    for (const std::size_t follower : followers[next]) {
      if (--open[follower] == 0) ready.push_back(follower);
    }
  }
  return order;
}

}  // namespace lockstep::fake_gpu
