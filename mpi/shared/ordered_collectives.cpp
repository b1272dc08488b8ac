// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/ordered_collectives.hpp"

#include <lockstep/core/error.hpp>

#include <stdexcept>
#include <string>

namespace lockstep::mpi {

Ticket OrderedCollectives::start(Job job) {
  throw_if_failed();
  job.call.sequence = numbers_.started + 1;
  if (job.call.kind != CallKind::reduce_ranges) {
    numbers_.last_closing = job.call.sequence;
  } else if (job.call.sequence > numbers_.last_closing + kMaxRangeTickets) {
    throw std::logic_error("comm: more than " + std::to_string(kMaxRangeTickets) + " pending reductions in ranges");
  }
  make_room(job.call.sequence);
  job_at(job.call.sequence) = job;
  remember_failure([&] { announce(job); });
  return {++numbers_.started};
}

/// The places of old jobs are used again; the peers must have read them by then. They have when they performed a later
/// job that closes those open to ranges.
void OrderedCollectives::make_room(std::uint64_t sequence) {
  constexpr std::uint64_t kRoom = kMaxJobs / 2;
  static_assert(kMaxRangeTickets < kRoom);
  if (sequence % kRoom != 0 || sequence < kMaxJobs) return;
  std::uint64_t closing = sequence - kRoom;
  while (job_at(closing).call.kind == CallKind::reduce_ranges) ++closing;
  guard([&] { work_off(closing); });
}

void OrderedCollectives::wait(Ticket ticket) {
  require_given(ticket);
  throw_if_failed();
  const Call& call = job_at(ticket.sequence).call;
  if (call.sequence == ticket.sequence && call.kind == CallKind::reduce_ranges) {
    throw std::logic_error("comm: wait for " + describe(call) +
                           ", which was started by reduce_ranges; wait for its ranges instead");
  }
  guard([&] { work_off(ticket.sequence); });
}

void OrderedCollectives::reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) {
  require_given(ticket);
  throw_if_failed();
  const Job& job = job_at(ticket.sequence);
  const Call& call = job.call;
  const bool is_ours = call.sequence == ticket.sequence && call.kind == CallKind::reduce_ranges;
  if (!is_ours || ticket.sequence < numbers_.first_open) {
    throw std::logic_error("comm: ticket " + std::to_string(ticket.sequence) +
                           " is not a reduction in ranges, or has already been completed");
  }
  if (range.begin > call.count || range.count > call.count - range.begin) {
    throw std::logic_error("comm: range of " + std::to_string(range.count) + " elements from " +
                           std::to_string(range.begin) + " in " + describe(call));
  }
  guard([&] { perform_until(ticket.sequence); });
  remember_failure([&] { take(job, range, consume); });
}

void OrderedCollectives::hand_over(const std::byte* result, const Job& job, Slice range, const RangeConsumer& consume) {
  for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
    const std::size_t begin = range.begin + offset;
    consume(begin, result + begin * job.element_bytes(), count);
  });
}

template <class Work>
void OrderedCollectives::guard(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    failure_ = error.what();
    notify_peers(failure_, ExitCode::communication);
    throw;
  }
}

template <class Work>
void OrderedCollectives::remember_failure(Work work) {
  try {
    work();
  } catch (const CommError& error) {
    failure_ = error.what();
    throw;
  }
}

void OrderedCollectives::work_off(std::uint64_t sequence) {
  if (sequence <= numbers_.settled) return;
  perform_until(sequence);
  settle(job_at(sequence));
  numbers_.settled = sequence;
}

void OrderedCollectives::perform_until(std::uint64_t sequence) {
  while (numbers_.performed < sequence) {
    const Job& job = job_at(++numbers_.performed);
    if (job.call.kind == CallKind::reduce_ranges) {
      open(job);
    } else {
      numbers_.first_open = numbers_.performed + 1;
      perform(job);
    }
  }
}

void OrderedCollectives::require_given(Ticket ticket) const {
  if (ticket.sequence <= numbers_.started) return;
  throw std::logic_error("comm: ticket " + std::to_string(ticket.sequence) + " is unknown");
}

void OrderedCollectives::throw_if_failed() const {
  if (!failure_.empty()) throw CommError(failure_);
}

void OrderedCollectives::complete(const Job& job) { wait(start(job)); }

BucketMemory OrderedCollectives::allocate_bucket(std::size_t bytes) {
  complete({.call = {.count = bytes, .kind = CallKind::allocate_bucket}});
  BucketMemory memory;
  remember_failure([&] { memory = allocate(bytes); });
  return memory;
}

std::unique_ptr<Collectives> OrderedCollectives::split(int color) {
  if (color < 0) throw std::logic_error("comm: split by color " + std::to_string(color) + "; the minimum color is 0");
  complete({.call = {.kind = CallKind::split}});
  std::unique_ptr<Collectives> part;
  remember_failure([&] { part = make_part(color); });
  if (auto* const ordered = dynamic_cast<OrderedCollectives*>(part.get())) ordered->join(family_);
  return part;
}

void OrderedCollectives::join(const std::shared_ptr<Family>& family) {
  family_ = family;
  family_->push_back(this);
}

Ticket OrderedCollectives::start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::all_reduce, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values)});
}

Ticket OrderedCollectives::start_reduce_ranges(void* values, std::size_t count, DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::reduce_ranges, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values)});
}

Ticket OrderedCollectives::start_lane_reduce(void* nodes, std::size_t count, std::size_t stride, DType dtype,
                                             ReduceOp op, const LaneTree& tree) {
  return start_lanes(CallKind::all_reduce, nodes, count, stride, dtype, op, tree);
}

Ticket OrderedCollectives::start_lane_ranges(void* nodes, std::size_t count, std::size_t stride, DType dtype,
                                             ReduceOp op, const LaneTree& tree) {
  return start_lanes(CallKind::reduce_ranges, nodes, count, stride, dtype, op, tree);
}

Ticket OrderedCollectives::start_lanes(CallKind kind, void* nodes, std::size_t count, std::size_t stride, DType dtype,
                                       ReduceOp op, const LaneTree& tree) {
  require_lane_reducible(dtype, op);
  if (tree.world_size() != world_size_ || stride < count) {
    throw std::logic_error("comm: lanes of " + std::to_string(tree.world_size()) + " ranks in a world of " +
                           std::to_string(world_size_) + ", nodes of " + std::to_string(count) + " elements " +
                           std::to_string(stride) + " apart");
  }
  return start({.call = {.count = count,
                         .lanes = tree.lanes(),
                         .layout = tree.fingerprint(),
                         .stride = stride,
                         .kind = kind,
                         .op = op,
                         .dtype = dtype},
                .values = static_cast<std::byte*>(nodes),
                .tree = &tree});
}

void OrderedCollectives::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= world_size_) {
    throw std::logic_error("comm: broadcast from rank " + std::to_string(root) + " of " + std::to_string(world_size_));
  }
  complete({.call = {.count = bytes.size(), .root = root, .kind = CallKind::broadcast}, .values = bytes.data()});
}

Ticket OrderedCollectives::start_all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * world_size_) {
    throw std::logic_error("comm: all_gather of " + std::to_string(mine.size()) + " bytes from " +
                           std::to_string(world_size_) + " ranks into " + std::to_string(all.size()));
  }
  return start({.call = {.count = mine.size(), .kind = CallKind::all_gather},
                .values = const_cast<std::byte*>(mine.data()),  // only read
                .result = all.data()});
}

Ticket OrderedCollectives::start_reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op,
                                                void* slice) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = CallKind::reduce_scatter, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values),
                .result = static_cast<std::byte*>(slice)});
}

void OrderedCollectives::begin_capture() { before_capture_ = numbers_; }

void OrderedCollectives::end_capture() {
  if (before_capture_) numbers_ = *before_capture_;
  before_capture_.reset();
}

void OrderedCollectives::barrier() { complete({.call = {.kind = CallKind::barrier}}); }

}  // namespace lockstep::mpi
