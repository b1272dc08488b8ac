// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <functional>
#include <memory>
#include <string>

#include "mpi/gpu.hpp"
#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi {

/// Work on a GPU, with its collectives, that is recorded once and then launched as one operation: a CUDA graph. It
/// reads and writes the same memory in every launch.
class StepGraph {
 public:
  /// @param collectives  of all operations in the graph; outlives it
  StepGraph(std::shared_ptr<const Gpu> gpu, Collectives& collectives);
  ~StepGraph();
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;

  /// Makes a stream that can be recorded the current one of this thread. Before anything else is queued there.
  /// @throws ConfigError  it cannot be made
  static void use_stream(const Gpu& gpu);

  /// Runs `body`, which queues work, and records that work without doing it. Once. Collective if `body` is.
  /// @return  why it could not be recorded, in the words of whoever found out; empty = it can be launched
  std::string record(const std::function<void()>& body);
  /// Called after `record` has succeeded. Does not wait for the work. Collective if the body is.
  /// @throws CommError  the GPU or a peer has failed
  void launch();

 private:
  std::shared_ptr<const Gpu> gpu_;
  Collectives* collectives_;
  gpu::Graph* graph_ = nullptr;
};

}  // namespace lockstep::mpi
