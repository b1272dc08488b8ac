// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>
#include <vector>

#include "fake_gpu/fake_gpu.hpp"
#include "fake_gpu/nccl/call_site.hpp"

namespace lockstep::fake_gpu::nccl {

enum class NcclCallKind { all_reduce, reduce, broadcast, all_gather, reduce_scatter };

/// The function of NCCL.
const char* name_of(NcclCallKind kind);

/// The part of a collective that must be the same on all ranks. Lies in shared memory.
struct NcclCall {
  NcclCallKind kind = NcclCallKind::all_reduce;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;  ///< ncclSum where nothing is reduced
  int root = 0;              ///< 0 where no rank is special
  std::size_t count = 0;     ///< count as the caller of NCCL passes it

  bool operator==(const NcclCall&) const = default;
};

/// A description, such as "ncclReduce of 4 float32 values (sum) to rank 1".
std::string describe(const NcclCall& call);

/// One rank's part of a collective.
struct NcclOperation {
  NcclCall call;
  const void* send = nullptr;
  void* recv = nullptr;
  cudaStream_t stream = nullptr;
  CallSite site;
};

/// The position of a rank among `size`.
struct Position {
  int rank = 0;
  int size = 1;
};

bool is_sender(const NcclCall& call, int rank);
bool is_receiver(const NcclCall& call, int rank);
std::size_t sent_values(const NcclCall& call, int ranks);
std::size_t received_values(const NcclCall& call, int ranks);

/// The memory that a rank's part reads and writes.
std::vector<Range> ranges_of(const NcclOperation& operation, Position position);

/// @throws Refusal  an argument is one that NCCL refuses
void require_valid(const NcclCall& call, int ranks);

/// Ends the process where NCCL would read or write memory that it must not: memory of the host that is not page-locked,
/// or a buffer that overlaps the other one at another place than NCCL allows.
void require_usable_buffers(const NcclOperation& operation, Position position);

/// Ends the process where two collectives of one group use the same memory, and one writes it: NCCL may run them at the
/// same time.
void require_separate_buffers(const std::vector<NcclOperation>& group, Position position);

}  // namespace lockstep::fake_gpu::nccl
