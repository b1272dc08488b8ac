// SPDX-License-Identifier: BSD-3-Clause
#include "ordered_collectives.hpp"

#include <lockstep/core/error.hpp>

#include <stdexcept>
#include <string>

#include "reduction.hpp"

namespace lockstep::mpi {

Ticket OrderedCollectives::start(Job job) {
  throw_if_failed();
  job.call.sequence = started_ + 1;
  // The places of old jobs are used again; the peers must have read them by then.
  if (job.call.sequence % (kMostJobs / 2) == 0 && job.call.sequence >= kMostJobs) {
    wait({job.call.sequence - kMostJobs / 2});
  }
  job_at(job.call.sequence) = job;
  announce(job);
  return {++started_};
}

void OrderedCollectives::wait(Ticket ticket) {
  if (ticket.sequence > started_) {
    throw std::logic_error("comm: ticket " + std::to_string(ticket.sequence) + " was never given");
  }
  throw_if_failed();
  try {
    work_off(ticket.sequence);
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

void OrderedCollectives::work_off(std::uint64_t sequence) {
  if (sequence <= settled_) return;
  while (performed_ < sequence) {
    ++performed_;
    perform(job_at(performed_));
  }
  settle(job_at(sequence));
  settled_ = sequence;
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
