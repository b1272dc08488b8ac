// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/call.hpp"

#include <cstdint>
#include <utility>

#include "fake_gpu/nccl/errors.hpp"
#include "fake_gpu/nccl/types.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

bool is_rooted(NcclCallKind kind) { return kind == NcclCallKind::reduce || kind == NcclCallKind::broadcast; }
bool is_reduction(NcclCallKind kind) { return kind != NcclCallKind::broadcast && kind != NcclCallKind::all_gather; }

std::uintptr_t begin_of(const Range& range) { return reinterpret_cast<std::uintptr_t>(range.begin); }
std::uintptr_t end_of(const Range& range) { return begin_of(range) + range.bytes; }
bool is_overlap(const Range& a, const Range& b) { return begin_of(a) < end_of(b) && begin_of(b) < end_of(a); }
bool is_conflict(const Range& a, const Range& b) { return (a.is_write || b.is_write) && is_overlap(a, b); }

/// The distance from the send to the receive buffer of an operation in place.
std::ptrdiff_t in_place_offset(const NcclCall& call, int rank) {
  const auto part = static_cast<std::ptrdiff_t>(call.count * size_of(call.type)) * rank;
  if (call.kind == NcclCallKind::all_gather) return -part;
  return call.kind == NcclCallKind::reduce_scatter ? part : 0;
}

void require_memory_of_gpu(const NcclOperation& operation, const void* buffer, const char* which) {
  const bool is_on_device = address(buffer) != buffer;
  if (is_on_device) return;  // the runtime knows whether it is allocated
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, buffer), "cudaPointerGetAttributes");
  if (attributes.type != cudaMemoryTypeUnregistered) return;
  break_rule(describe(operation.call) + " has a " + which + " buffer that the GPU cannot access: memory of the host " +
                 "must be page-locked. A real GPU reports an illegal address later, or its process fails.",
             operation.site);
}

}  // namespace

const char* name_of(NcclCallKind kind) {
  switch (kind) {
    case NcclCallKind::all_reduce:
      return "ncclAllReduce";
    case NcclCallKind::reduce:
      return "ncclReduce";
    case NcclCallKind::broadcast:
      return "ncclBroadcast";
    case NcclCallKind::all_gather:
      return "ncclAllGather";
    case NcclCallKind::reduce_scatter:
      return "ncclReduceScatter";
  }
  return "unknown";
}

std::string describe(const NcclCall& call) {
  std::string text = std::string(name_of(call.kind)) + " of " + std::to_string(call.count) + " " + name_of(call.type) +
                     (call.count == 1 ? " value" : " values");
  if (is_reduction(call.kind)) text += std::string(" (") + name_of(call.op) + ")";
  if (is_rooted(call.kind))
    text += (call.kind == NcclCallKind::reduce ? " to rank " : " from rank ") + std::to_string(call.root);
  return text;
}

bool is_sender(const NcclCall& call, int rank) { return call.kind != NcclCallKind::broadcast || rank == call.root; }
bool is_receiver(const NcclCall& call, int rank) { return call.kind != NcclCallKind::reduce || rank == call.root; }

std::size_t sent_values(const NcclCall& call, int ranks) {
  return call.count * (call.kind == NcclCallKind::reduce_scatter ? static_cast<std::size_t>(ranks) : 1);
}

std::size_t received_values(const NcclCall& call, int ranks) {
  return call.count * (call.kind == NcclCallKind::all_gather ? static_cast<std::size_t>(ranks) : 1);
}

std::vector<Range> ranges_of(const NcclOperation& operation, Position position) {
  const NcclCall& call = operation.call;
  const std::size_t value_bytes = size_of(call.type);
  std::vector<Range> ranges;
  if (is_sender(call, position.rank)) {
    ranges.push_back({operation.send, sent_values(call, position.size) * value_bytes, false});
  }
  if (is_receiver(call, position.rank)) {
    ranges.push_back({operation.recv, received_values(call, position.size) * value_bytes, true});
  }
  return ranges;
}

void require_valid(const NcclCall& call, int ranks) {
  const std::string name = name_of(call.kind);
  if (size_of(call.type) == 0) throw Refusal(ncclInvalidArgument, name + ": the data type does not exist.");
  if (!is_known(call.op)) throw Refusal(ncclInvalidArgument, name + ": the reduction does not exist.");
  if (call.root < 0 || call.root >= ranks) {
    throw Refusal(ncclInvalidArgument, name + ": the root is rank " + std::to_string(call.root) + " of " +
                                           std::to_string(ranks) + " ranks.");
  }
}

void require_usable_buffers(const NcclOperation& operation, Position position) {
  const NcclCall& call = operation.call;
  if (is_sender(call, position.rank)) require_memory_of_gpu(operation, operation.send, "send");
  if (is_receiver(call, position.rank)) require_memory_of_gpu(operation, operation.recv, "receive");
  const std::vector<Range> ranges = ranges_of(operation, position);
  if (ranges.size() < 2 || !is_conflict(ranges[0], ranges[1])) return;
  const auto distance = static_cast<std::ptrdiff_t>(begin_of(ranges[1]) - begin_of(ranges[0]));
  if (distance == in_place_offset(call, position.rank)) return;
  break_rule(describe(call) + " has buffers that overlap, but not as NCCL's operations in place do.", operation.site);
}

void require_separate_buffers(const std::vector<NcclOperation>& group, Position position) {
  for (std::size_t later = 1; later < group.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      for (const Range& a : ranges_of(group[earlier], position)) {
        for (const Range& b : ranges_of(group[later], position)) {
          if (!is_conflict(a, b)) continue;
          break_rule(describe(group[earlier].call) + " and " + describe(group[later].call) +
                         " are in one group, use the same memory, and one of them writes it.",
                     group[later].site);
        }
      }
    }
  }
}

}  // namespace lockstep::fake_gpu::nccl
