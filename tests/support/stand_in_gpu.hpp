// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mpi/gpu/module_api.hpp"

namespace lockstep::mpi {
class Gpu;
}

/// A GPU module for machines without a GPU: "device memory" is host memory of its own, and NCCL is MPI messages. As
/// strict as NCCL's non-blocking mode: a link that is under way takes no other call, and results are seen only once
/// their event was awaited or found to be over.
namespace lockstep::testing {

struct StandIn {
  int polls = 2;  ///< until a call on a link is no longer under way
  bool never_connects = false;
  bool never_ends = false;  ///< operations do not end before an abort
  std::string id_fault;     ///< the root gets no id
  std::string allocation_fault;
  double abort_seconds = 0;  ///< that an abort takes
  int nccl_loaded = 22809;
  std::string uuid = "GPU-of-rank-";  ///< followed by the rank in MPI_COMM_WORLD, unless `shares_gpu`
  bool shares_gpu = false;
  bool shares_bus = false;    ///< ranks have parts of one GPU
  std::string capture_fault;  ///< no capture can be ended
  /// Called when a capture begins and ends; what it adds to stand_in_recording is replayed in order.
  std::function<void(bool begins)> on_capture = {};
  std::function<void()> on_failed_capture = {};  ///< called for a capture that fails: its work must not have been done
  bool undoes_captures = false;  ///< whether on_capture undoes the work at the end, so that the first launch does it
  bool has_all_memory = false;   ///< all memory counts as the GPU's: tensors on the CPU stand in for a GPU's

  int links = 0;                   ///< alive
  int graphs = 0;                  ///< alive
  int captures = 0;                ///< graphs that were launched at least once
  int launches = 0;                ///< launches of graphs
  int allocations = 0;             ///< alive
  std::vector<std::string> calls;  ///< operations, in order
};

/// Back to the defaults; call it before each test.
void reset_stand_in();
/// Must be changed while no link lives that could look at it.
StandIn& stand_in();
/// NCCL's asynchronous error from now on, on every link of this process; empty = none.
void set_stand_in_fault(const std::string& fault);
/// Links aborted since the reset.
int stand_in_aborts();
/// The operations of the graph that is being recorded; null = none is. Work is done when it is recorded, which stands
/// for the first launch unless `undoes_captures`, and again in each later launch.
std::vector<std::function<void()>>* stand_in_recording();
const mpi::gpu::ModuleApi& stand_in_api();
std::shared_ptr<const mpi::Gpu> stand_in_gpu();

/// "Device memory" outside buckets, zeroed, aligned to 64 bytes.
std::shared_ptr<std::byte> stand_in_memory(std::size_t bytes);

}  // namespace lockstep::testing
