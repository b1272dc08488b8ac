// SPDX-License-Identifier: BSD-3-Clause
#include "fake_gpu/runtime/counters.hpp"

namespace lockstep::fake_gpu {

namespace {

constexpr std::int64_t Counters::*kAll[] = {
    &Counters::launches,        &Counters::synchronizations, &Counters::late_waits,
    &Counters::pageable_copies, &Counters::host_reads,       &Counters::device_allocations,
    &Counters::device_frees,    &Counters::host_allocations, &Counters::nccl_calls,
};
static_assert(sizeof(kAll) / sizeof(kAll[0]) * sizeof(std::int64_t) == sizeof(Counters), "every counter is listed");

Counters total;

}  // namespace

void add(Counters& sum, const Counters& other) {
  for (const auto counter : kAll) sum.*counter += other.*counter;
}

void count(const Counters& done) { add(total, done); }

const Counters& counted() { return total; }

}  // namespace lockstep::fake_gpu
