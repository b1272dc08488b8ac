// SPDX-License-Identifier: BSD-3-Clause
// Communicators of several processes, without MPI: a test forks one for each rank. The test program itself must never
// call CUDA, because the threads of the fake GPU are not in its children.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>
#include <vector>

#include "fake_gpu/rules/support.hpp"

namespace lockstep::fake_gpu {

/// One process of a test.
struct Rank {
  int rank = 0;
  int size = 1;
  ncclUniqueId id = {};  ///< id of one communicator of all ranks

  /// Waits for all ranks, without CUDA and NCCL.
  void meet() const;

  std::atomic<int>* arrivals = nullptr;  ///< shared
};

/// How a process ended.
struct Ended {
  int code = 0;      ///< exit code, or 128 + the signal
  std::string text;  ///< text: what it wrote to stderr
};

/// Runs `body` in a process for each rank, each on a host of its own for NCCL (NCCL_HOSTID). A process that does not
/// end is killed.
std::vector<Ended> run_ranks(int size, const std::function<void(const Rank&)>& body);

/// Expects that `body` passes on all ranks.
void expect_pass(int size, const std::function<void(const Rank&)>& body);

/// Expects that the fake GPU ends all processes and prints `sentence`.
void expect_all_broken(int size, const std::string& sentence, const std::function<void(const Rank&)>& body);

/// The state of a communicator once nothing is in progress.
ncclResult_t settled(ncclComm_t comm);

/// Begins a communicator and waits until it is of use, or is not.
ncclResult_t init(const Rank& rank, bool is_blocking, ncclComm_t* comm);

inline std::string last_error() { return ncclGetLastError(nullptr); }

class Comm {
 public:
  explicit Comm(const Rank& rank, bool is_blocking = true);
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();

  operator ncclComm_t() const { return handle_; }  // NOLINT: used as one

 private:
  ncclComm_t handle_ = NCCL_COMM_NULL;
};

/// Writes values of the host to device memory, for all streams.
void write(const Floats& floats, const std::vector<float>& values);

/// Queues an all-reduce in place that adds float32 values.
ncclResult_t sum(const Floats& floats, ncclComm_t comm, cudaStream_t stream);

/// Begins the capture of a stream.
void begin(cudaStream_t stream);
/// Ends it.
cudaGraphExec_t end(cudaStream_t stream);

/// 1 + 2 + ... + ranks.
inline float sum_of_ranks(const Rank& rank) { return static_cast<float>(rank.size * (rank.size + 1) / 2); }

}  // namespace lockstep::fake_gpu
