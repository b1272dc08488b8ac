// SPDX-License-Identifier: BSD-3-Clause
#include "embed/agreement.hpp"

#include <lockstep/core/error.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <string>
#include <vector>

namespace lockstep::embed {

namespace {

constexpr std::array kNames = {"close", "train", "train_buffer", "save", "resume", "set_parameter", "update"};

/// Numbers are equal exactly if the square of their sum is their count times the sum of their squares.
bool are_equal(double sum, double squares, int count) { return sum * sum == static_cast<double>(count) * squares; }

[[noreturn]] void throw_different(SessionCall call, const mpi::Communicator& world) {
  const std::vector<std::string> names = world.all_gather(std::string(kNames.at(static_cast<std::size_t>(call))));
  const auto other = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name != names.front(); });
  throw_agreed(ExitCode::configuration, "rank 0 calls " + names.front() + ", but rank " +
                                            std::to_string(other - names.begin()) + " calls " + *other +
                                            "; all ranks of a run make the same collective calls in the same order");
}

}  // namespace

SessionNumbers enter(SessionCall call, const mpi::Communicator& world, mpi::Collectives& collectives,
                     const std::function<SessionNumbers()>& prepare) {
  std::exception_ptr failure;
  SessionNumbers mine;
  try {
    mine = prepare();
  } catch (...) {
    failure = std::current_exception();
  }
  if (world.size() == 1) {
    if (failure) world.all_or_throw([&] { std::rethrow_exception(failure); });
    return mine;
  }
  const auto number = static_cast<double>(call);
  const auto steps = static_cast<double>(mine.steps);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  std::array sums = {failure ? 1.0 : 0.0, number,
                     number * number,     steps,
                     steps * steps,       real(mine.samples),
                     real(mine.kept),     real(mine.producers),
                     real(mine.received), real(mine.dropped)};
  collectives.all_reduce(sums.data(), sums.size(), DType::float64, mpi::ReduceOp::sum);
  if (!are_equal(sums[1], sums[2], world.size())) throw_different(call, world);
  if (sums[0] > 0) {
    world.all_or_throw([&] {
      if (failure) std::rethrow_exception(failure);
    });
  }
  if (!are_equal(sums[3], sums[4], world.size())) {
    throw_agreed(ExitCode::configuration, "ranks request different numbers of steps");
  }
  return {.samples = static_cast<std::int64_t>(sums[5]),
          .kept = static_cast<std::int64_t>(sums[6]),
          .producers = static_cast<std::int64_t>(sums[7]),
          .received = static_cast<std::int64_t>(sums[8]),
          .dropped = static_cast<std::int64_t>(sums[9]),
          .steps = mine.steps};
}

}  // namespace lockstep::embed
