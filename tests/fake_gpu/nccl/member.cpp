// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/nccl/member.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <unistd.h>
#include <utility>

#include "fake_gpu/nccl/errors.hpp"
#include "fake_gpu/nccl/types.hpp"

namespace lockstep::fake_gpu::nccl {

namespace {

constexpr int kFaultExit = 1;

}  // namespace

std::shared_ptr<const void> Member::hold_for_graph(std::shared_ptr<Member> member) {
  ++member->graphs_;
  const Member* const held = member.get();
  return {held, [member = std::move(member)](const Member*) { --member->graphs_; }};
}

void Member::run(const std::vector<NcclOperation>& operations) {
  ++running_;
  {
    const std::lock_guard<std::mutex> hold(run_mutex_);
    for (const NcclOperation& operation : operations) run_one(operation);
  }
  --running_;
}

/// One piece at a time: every rank lays its values down, and all take what they need once all have come.
void Member::run_one(const NcclOperation& operation) {
  if (!survives_faults()) return;
  const NcclCall& call = operation.call;
  const std::size_t total = sent_values(call, position().size);
  const std::size_t piece = kPieceBytes / size_of(call.type);
  // Memory may move between the recording of a graph and its launch.
  const auto* const send = static_cast<const std::byte*>(address(operation.send));
  auto* const recv = static_cast<std::byte*>(address(operation.recv));
  Gate& gate = meeting_.device_gate();
  for (std::size_t first = 0; first < total; first += piece) {
    const std::size_t count = std::min(piece, total - first);
    lay_down(operation, send, first, count);
    gate.arrive();
    if (!gate.wait(is_aborted_)) return;
    if (first == 0) require_same_call(operation);
    take_up(operation, recv, first, count);
  }
}

bool Member::survives_faults() {
  if (is_aborted_) return false;
  double seconds = 0;
  if (is_due(PlannedFault::nccl_exit)) _exit(kFaultExit);
  if (is_due(PlannedFault::nccl_late, &seconds)) sleep(seconds);
  if (is_due(PlannedFault::nccl_error)) {
    error_ = ncclRemoteError;
    sleep(std::numeric_limits<double>::infinity());  // NCCL documents it so: it never completes, until it is aborted
  }
  return !is_aborted_;
}

void Member::lay_down(const NcclOperation& operation, const std::byte* send, std::size_t first, std::size_t count) {
  const std::size_t side = meeting_.device_gate().next_side();
  const auto mine = static_cast<std::size_t>(position().rank);
  const std::size_t value_bytes = size_of(operation.call.type);
  meeting_.region().calls[side][mine] = operation.call;
  if (!is_sender(operation.call, position().rank)) return;
  std::memcpy(meeting_.region().pieces[side][mine].data(), send + first * value_bytes, count * value_bytes);
}

/// Real NCCL does not compare calls: it hangs, or mixes up values.
void Member::require_same_call(const NcclOperation& operation) {
  const auto& calls = meeting_.region().calls[meeting_.device_gate().side()];
  for (int rank = 0; rank < position().size; ++rank) {
    const NcclCall& other = calls[static_cast<std::size_t>(rank)];
    if (other == operation.call) continue;
    break_rule("The ranks of a communicator made different calls: rank " + std::to_string(position().rank) + " made " +
                   describe(operation.call) + ", rank " + std::to_string(rank) + " made " + describe(other) +
                   ". Real NCCL hangs or mixes up values.",
               operation.site);
  }
}

void Member::take_up(const NcclOperation& operation, std::byte* recv, std::size_t first, std::size_t count) {
  const NcclCall& call = operation.call;
  if (!is_receiver(call, position().rank)) return;
  const std::size_t value_bytes = size_of(call.type);
  const auto& pieces = meeting_.region().pieces[meeting_.device_gate().side()];
  switch (call.kind) {
    case NcclCallKind::all_reduce:
    case NcclCallKind::reduce:
      return take_reduced(call, recv + first * value_bytes, 0, count);
    case NcclCallKind::broadcast:
      std::memcpy(recv + first * value_bytes, pieces[static_cast<std::size_t>(call.root)].data(), count * value_bytes);
      return;
    case NcclCallKind::all_gather:
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(position().size); ++rank) {
        std::memcpy(recv + (rank * call.count + first) * value_bytes, pieces[rank].data(), count * value_bytes);
      }
      return;
    case NcclCallKind::reduce_scatter: {  // the part of this piece that belongs to this rank
      const std::size_t mine = static_cast<std::size_t>(position().rank) * call.count;
      const std::size_t begin = std::max(first, mine);
      const std::size_t end = std::min(first + count, mine + call.count);
      if (begin < end) take_reduced(call, recv + (begin - mine) * value_bytes, begin - first, end - begin);
      return;
    }
  }
}

/// Combines the values [first, first + count) of the ranks' pieces.
void Member::take_reduced(const NcclCall& call, std::byte* target, std::size_t first, std::size_t count) {
  const auto& pieces = meeting_.region().pieces[meeting_.device_gate().side()];
  std::array<const std::byte*, kMaxRanks> sources{};
  const auto ranks = static_cast<std::size_t>(position().size);
  for (std::size_t rank = 0; rank < ranks; ++rank) sources[rank] = pieces[rank].data() + first * size_of(call.type);
  reduce({sources.data(), ranks}, target, count, call.type, call.op);
}

/// Ends early once aborted.
void Member::sleep(double seconds) const {
  using namespace std::chrono_literals;
  const auto begin = std::chrono::steady_clock::now();
  while (!is_aborted_ && std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < seconds) {
    std::this_thread::sleep_for(1ms);
  }
}

}  // namespace lockstep::fake_gpu::nccl
