// SPDX-License-Identifier: BSD-3-Clause
// Time of an all_reduce of float32 in bucket memory, by the backend that the trainer takes by default. A call is timed
// after a barrier and takes as long as on the slowest rank; the median of the calls counts. Prints one JSON line.
//
// usage: bench_all_reduce [CALLS]
#include <lockstep/core/error.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "timing.hpp"

namespace {

using namespace lockstep;

constexpr std::size_t kSizes[] = {std::size_t{4} << 10, std::size_t{1} << 20, std::size_t{25} << 20};  // bytes
constexpr int kWarmupCalls = 5;

/// Median milliseconds. Every rank's values are written anew before each call, as gradients are.
double time_of(std::size_t bytes, int timed_calls, mpi::Collectives& collectives, const mpi::Communicator& world) {
  const mpi::BucketMemory memory = collectives.allocate_bucket(bytes);
  const std::span<float> values(reinterpret_cast<float*>(memory.bytes.data()), bytes / sizeof(float));
  const auto sum = static_cast<float>(world.size() * (world.size() + 1) / 2);
  std::vector<double> times;
  for (int call = -kWarmupCalls; call < timed_calls; ++call) {
    std::fill(values.begin(), values.end(), static_cast<float>(world.rank() + 1));
    world.barrier();
    const bench::Clock::time_point begin = bench::Clock::now();
    collectives.all_reduce(values.data(), values.size(), DType::float32, mpi::ReduceOp::sum);
    if (call >= 0) times.push_back(bench::milliseconds_since(begin));
    const bool is_right = std::all_of(values.begin(), values.end(), [sum](float value) { return value == sum; });
    if (!is_right) throw CommError("all_reduce gave a wrong sum");
  }
  world.all_reduce(std::span(times), mpi::Op::max);
  return bench::median(times);
}

}  // namespace

int main(int argc, char** argv) {
  mpi::Environment environment(&argc, &argv);
  const mpi::Communicator world = mpi::Communicator::world();
  const auto collectives = mpi::make_collectives(world, {});
  const int timed_calls = argc > 1 ? std::atoi(argv[1]) : 200;
  std::string rows;
  for (const std::size_t bytes : kSizes) {
    rows += (rows.empty() ? "" : ", ") + (R"({"bytes": )" + std::to_string(bytes)) + R"(, "median_ms": )" +
            std::to_string(time_of(bytes, timed_calls, *collectives, world)) + "}";
  }
  if (world.is_root())
    std::printf(R"({"name": "all_reduce", "rows": [%s]})"
                "\n",
                rows.c_str());
  environment.finish();
}
