// SPDX-License-Identifier: BSD-3-Clause
#include "mpi/shared/ordered_collectives.hpp"

#include <lockstep/core/error.hpp>

#include <stdexcept>

#include "core/system/status_line.hpp"

namespace lockstep::mpi {

Ticket OrderedCollectives::start(const Job& job) {
  throw_if_failed();
  const std::uint64_t sequence = numbers_.started + 1;
  if (job.call.kind != CallKind::reduce_ranges) {
    numbers_.last_closing = sequence;
  } else if (sequence > numbers_.last_closing + kMaxRangeTickets) {
    throw std::logic_error("comm: more than " + std::to_string(kMaxRangeTickets) + " pending reductions in ranges");
  }
  make_room(sequence);
  job_at(sequence) = job;
  job_at(sequence).call.sequence = sequence;
  remember_failure([&] { announce(job_at(sequence)); });
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
  guard(job_at(closing).call, [&] { work_off(closing); });
}

void OrderedCollectives::wait(Ticket ticket) {
  require_given(ticket);
  throw_if_failed();
  const Call& call = job_at(ticket.sequence).call;
  if (call.sequence == ticket.sequence && call.kind == CallKind::reduce_ranges) {
    throw std::logic_error("comm: wait for " + describe(call) +
                           ", which was started by reduce_ranges; wait for its ranges instead");
  }
  guard(call, [&] { work_off(ticket.sequence); });
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
  guard(call, [&] { perform_until(ticket.sequence); });
  remember_failure([&] { take(job, range, consume); });
}

template <class Work>
void OrderedCollectives::guard(const Call& call, Work work) {
  const ScopedPhase phase(call.sequence, static_cast<std::uint8_t>(call.kind));
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
  if (auto* const ordered = dynamic_cast<OrderedCollectives*>(part.get())) {
    ordered->family_ = family_;
    family_->push_back(ordered);
  }
  return part;
}

void OrderedCollectives::end_recorded_calls() {
  if (before_recording_) numbers_ = *before_recording_;
  before_recording_.reset();
}

}  // namespace lockstep::mpi
