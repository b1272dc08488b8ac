// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "mpi/gpu/gpu.hpp"
#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi {

class DeviceCollectives;

/// Work on a GPU, with its collectives, that is recorded once and then launched as one operation: a CUDA graph. It
/// reads and writes the same memory in every launch.
class StepGraph {
 public:
  /// @param collectives  of all operations in the graph, also those of its parts (Collectives::split); outlives it
  /// @param beside       null, or a graph of which this one uses the memory, too: the graphs are always launched one
  ///                     after the other, in the order in which they were recorded. Outlives `record`
  StepGraph(std::shared_ptr<const Gpu> gpu, Collectives& collectives, const StepGraph* beside = nullptr);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Makes a stream that can be recorded the current one of this thread. Before anything else is queued there.
  /// @throws ConfigError  it cannot be made
  static void use_stream(const Gpu& gpu);

  /// Runs `body`, which queues work, and records that work without doing it. Once. Collective if `body` is.
  /// @return  why it could not be recorded, in the words of whoever found out; empty = it can be launched
  std::string record(const std::function<void()>& body);
  /// The place, while it is recorded, of LibTorch's generator in the random numbers of the graph.
  std::uint64_t draw_offset() const;
  void set_draw_offset(std::uint64_t offset) const;
  /// Called after `record` has succeeded. Does not wait for the work. Collective if the body is.
  /// @throws CommError  the GPU or a peer has failed
  void launch();

 private:
  std::shared_ptr<const Gpu> gpu_;
  DeviceCollectives* device_;  // null = no operation of collectives is recorded
  const StepGraph* beside_;
  gpu::Graph* graph_ = nullptr;
};

}  // namespace lockstep::mpi
