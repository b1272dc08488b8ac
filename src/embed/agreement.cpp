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

[[noreturn]] void throw_different(SessionCall call, const mpi::Communicator& world) {
  const std::vector<std::string> names = world.all_gather(std::string(kNames.at(static_cast<std::size_t>(call))));
  const auto other = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name != names.front(); });
  throw_agreed(ExitCode::configuration, "rank 0 calls " + names.front() + ", but rank " +
                                            std::to_string(other - names.begin()) + " calls " + *other +
                                            "; all ranks of a run make the same collective calls in the same order");
}

}  // namespace

std::int64_t enter(SessionCall call, const mpi::Communicator& world, mpi::Collectives& collectives,
                   const std::function<std::int64_t()>& prepare) {
  std::exception_ptr failure;
  std::int64_t samples = 0;
  try {
    samples = prepare();
  } catch (...) {
    failure = std::current_exception();
  }
  if (world.size() == 1) {
    if (failure) world.all_or_throw([&] { std::rethrow_exception(failure); });
    return samples;
  }
  // Calls are equal exactly if the square of their sum is the number of ranks times the sum of their squares.
  const auto number = static_cast<double>(call);
  std::array sums = {failure ? 1.0 : 0.0, number, number * number, static_cast<double>(samples)};
  collectives.all_reduce(sums.data(), sums.size(), DType::float64, mpi::ReduceOp::sum);
  if (sums[1] * sums[1] != static_cast<double>(world.size()) * sums[2]) throw_different(call, world);
  if (sums[0] > 0) {
    world.all_or_throw([&] {
      if (failure) std::rethrow_exception(failure);
    });
  }
  return static_cast<std::int64_t>(sums[3]);
}

}  // namespace lockstep::embed
