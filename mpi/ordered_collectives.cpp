// SPDX-License-Identifier: BSD-3-Clause
#include "ordered_collectives.hpp"

#include <lockstep/core/error.hpp>

#include <stdexcept>
#include <string>

#include "chunks.hpp"
#include "reduction.hpp"

namespace lockstep::mpi {

Ticket OrderedCollectives::start(Job job) {
  throw_if_failed();
  job.call.sequence = started_ + 1;
  // The places of old jobs are used again; the peers must have read them by then.
  if (job.call.sequence % (kMostJobs / 2) == 0 && job.call.sequence >= kMostJobs) {
    guard([&] { work_off(job.call.sequence - kMostJobs / 2); });
  }
  job_at(job.call.sequence) = job;
  announce(job);
  return {++started_};
}

void OrderedCollectives::wait(Ticket ticket) {
  require_given(ticket);
  throw_if_failed();
  const Job& job = job_at(ticket.sequence);
  if (job.is_ranged && job.call.sequence == ticket.sequence) {
    throw std::logic_error("comm: wait for " + describe(job.call) + ", which was taken by ranges");
  }
  guard([&] { work_off(ticket.sequence); });
}

void OrderedCollectives::reduce_range(Ticket ticket, Slice range, const RangeConsumer& consume) {
  require_given(ticket);
  throw_if_failed();
  Job& job = job_at(ticket.sequence);
  const bool is_known = job.call.sequence == ticket.sequence && job.call.kind == Kind::all_reduce;
  if (!is_known || (job.is_ranged && open_ != ticket.sequence)) {
    throw std::logic_error("comm: range of ticket " + std::to_string(ticket.sequence) +
                           ", which is no all_reduce or was taken to its end");
  }
  if (range.begin > job.call.count || range.count > job.call.count - range.begin) {
    throw std::logic_error("comm: range of " + std::to_string(range.count) + " elements from " +
                           std::to_string(range.begin) + " in " + describe(job.call));
  }
  guard([&] { ready_for_ranges(job); });
  if (!job.is_ranged) return hand_over(job, range, consume);
  try {
    take(job, range, consume);
  } catch (const CommError& error) {  // what `consume` throws is none of ours
    failure_ = error.what();
    throw;
  }
}

void OrderedCollectives::hand_over(const Job& job, Slice range, const RangeConsumer& consume) {
  const std::size_t element_bytes = size_of(job.call.dtype);
  for_each_chunk(range.count, kPieceElements, [&](std::size_t offset, std::size_t count) {
    const std::size_t begin = range.begin + offset;
    consume(begin, job.values + begin * element_bytes, count);
  });
}

template <class Work>
void OrderedCollectives::guard(Work work) {
  try {
    work();
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

void OrderedCollectives::work_off(std::uint64_t sequence) {
  if (sequence <= settled_) return;
  perform_until(sequence);
  if (open_ == sequence) close_open_job();
  settle(job_at(sequence));
  settled_ = sequence;
}

void OrderedCollectives::perform_until(std::uint64_t sequence) {
  while (performed_ < sequence) {
    close_open_job();
    ++performed_;
    perform(job_at(performed_));
  }
}

/// Opens the job, or makes sure that its values hold the result where it was performed before.
void OrderedCollectives::ready_for_ranges(Job& job) {
  const std::uint64_t sequence = job.call.sequence;
  if (open_ == sequence) return;
  if (performed_ >= sequence) return work_off(sequence);
  perform_until(sequence - 1);
  close_open_job();
  ++performed_;
  job.is_ranged = true;
  open_ = sequence;
  open(job);
}

void OrderedCollectives::close_open_job() {
  if (open_ == 0) return;
  close(job_at(open_));
  open_ = 0;
}

void OrderedCollectives::require_given(Ticket ticket) const {
  if (ticket.sequence <= started_) return;
  throw std::logic_error("comm: ticket " + std::to_string(ticket.sequence) + " was never given");
}

void OrderedCollectives::throw_if_failed() const {
  if (!failure_.empty()) throw CommError(failure_);
}

void OrderedCollectives::complete(const Job& job) { wait(start(job)); }

Ticket OrderedCollectives::start_all_reduce(void* values, std::size_t count, DType dtype, ReduceOp op) {
  require_reducible(dtype, op);
  return start({.call = {.count = count, .kind = Kind::all_reduce, .op = op, .dtype = dtype},
                .values = static_cast<std::byte*>(values)});
}

void OrderedCollectives::broadcast(std::span<std::byte> bytes, int root) {
  if (root < 0 || root >= world_size_) {
    throw std::logic_error("comm: broadcast from rank " + std::to_string(root) + " of " + std::to_string(world_size_));
  }
  complete({.call = {.count = bytes.size(), .root = root, .kind = Kind::broadcast}, .values = bytes.data()});
}

void OrderedCollectives::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size() * world_size_) {
    throw std::logic_error("comm: all_gather of " + std::to_string(mine.size()) + " bytes from " +
                           std::to_string(world_size_) + " ranks into " + std::to_string(all.size()));
  }
  complete({.call = {.count = mine.size(), .kind = Kind::all_gather},
            .values = const_cast<std::byte*>(mine.data()),  // only read
            .result = all.data()});
}

void OrderedCollectives::reduce_scatter(void* values, std::size_t count, DType dtype, ReduceOp op, void* slice) {
  require_reducible(dtype, op);
  complete({.call = {.count = count, .kind = Kind::reduce_scatter, .op = op, .dtype = dtype},
            .values = static_cast<std::byte*>(values),
            .result = static_cast<std::byte*>(slice)});
}

void OrderedCollectives::barrier() { complete({.call = {.kind = Kind::barrier}}); }

}  // namespace lockstep::mpi
