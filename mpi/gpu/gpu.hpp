// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/communicator.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace lockstep::mpi {

namespace gpu {
struct ModuleApi;
}

/// The GPUs that a driver offers to this process.
struct GpuDriver {
  int gpus = 0;
  bool is_broken = false;  ///< a driver is installed, but refuses to work
  std::string fault;       ///< why there are none, in a few words
};

/// Asks the driver itself (libcuda.so.1): where there is none, nothing of CUDA gets into the process. Not collective.
GpuDriver probe_gpu_driver();

/// The name of the GPU that a rank may compute on; empty where there is none, or it cannot be used. Opens the module
/// only where a driver is found. To be called before anything asks LibTorch about CUDA. Not collective.
/// @param local_rank  position among the ranks of this host
std::string gpu_name(int local_rank);

/// The owner of some memory, and whether the host can access it.
struct MemoryPlace {
  int device = -1;      ///< LibTorch's number of the GPU that has it; -1 = memory of the host
  bool is_host = true;  ///< with a device, too: managed memory
};

/// The GPU that a rank computes on, through the module that drives it (lockstep_gpu.so).
class Gpu {
 public:
  /// Makes device `index` that of the calling thread.
  /// @param api  outlives the object
  /// @throws ConfigError  the device cannot be used
  Gpu(const gpu::ModuleApi& api, int index);

  int index() const noexcept { return index_; }  ///< LibTorch's number of the device
  const std::string& name() const noexcept { return name_; }
  const std::string& uuid() const noexcept { return uuid_; }  ///< identifies a GPU across processes
  /// Identifies a GPU on its host: parts of one GPU (MIG) have the same.
  const std::string& bus_id() const noexcept { return bus_id_; }
  int previous() const noexcept { return previous_; }  ///< device of the thread before it got this one
  const gpu::ModuleApi& api() const noexcept { return *api_; }
  /// @throws CommError  CUDA refuses to say it
  MemoryPlace place_of(const void* memory) const;
  /// LibTorch's number of a stream that the program has made on this GPU.
  /// @param stream  a cudaStream_t; null = the default stream
  std::int64_t number_of_stream(void* stream) const;

 private:
  const gpu::ModuleApi* api_;
  int index_;
  std::string name_;
  std::string uuid_;
  std::string bus_id_;
  int previous_;
};

/// Bytes of buckets in the memory of this process's GPU. NCCL has allocated them, so that LibTorch's statistics do not
/// contain them. Not collective.
std::int64_t bucket_bytes_on_gpu() noexcept;
/// The code that allocates and releases them calls it.
void add_bucket_bytes_on_gpu(std::int64_t bytes) noexcept;

/// The result of run.device.
struct DeviceChoice {
  std::shared_ptr<const Gpu> gpu;  ///< null = the CPU
  std::string remark;              ///< why `auto` passed by a GPU or a driver that is there; else empty
};

/// Decides for all ranks alike where they compute, and opens the module if that is a GPU. To be called before anything
/// asks LibTorch about CUDA, which settles once per process whether there is any.
///
/// Rank i of a host takes GPU i of those that it sees, counted round.
/// @param device      cpu; cuda; auto: cuda where every rank can have it
/// @param local_rank  position among the ranks of this host
/// @throws ConfigError  `cuda`, and a rank has no driver, no GPU or no module; on every rank
/// Collective.
DeviceChoice choose_device(const std::string& device, const Communicator& world, int local_rank);

}  // namespace lockstep::mpi
