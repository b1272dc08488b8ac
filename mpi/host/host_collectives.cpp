// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/host/host_collectives.hpp"

namespace lockstep::mpi {

void HostCollectives::perform(const Job& job) {
  await_all(job);
  switch (job.call.kind) {
    case CallKind::all_reduce:
    case CallKind::reduce_ranges:
      perform_all_reduce(job);
      break;
    case CallKind::reduce_scatter:
      perform_reduce_scatter(job);
      break;
    case CallKind::broadcast:
      perform_broadcast(job);
      break;
    case CallKind::all_gather:
      perform_all_gather(job);
      break;
    case CallKind::barrier:
    case CallKind::allocate_bucket:
    case CallKind::split:
    case CallKind::replay:
      break;  // all have come: that is all
  }
  finish(job);
}

void HostCollectives::hand_over(const std::byte* result, const Job& job, Slice range, const RangeConsumer& consume) {
  for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
    const std::size_t begin = range.begin + offset;
    consume(begin, result + begin * job.element_bytes(), count);
  });
}

}  // namespace lockstep::mpi
