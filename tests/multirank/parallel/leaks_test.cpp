// SPDX-License-Identifier: BSD-3-Clause
#include <filesystem>
#include <fstream>
#include <tuple>

#include "parallel_test.hpp"

namespace lockstep::parallel {
namespace leaks_test {

using LeaksTest = ParallelTest;

/// The memory that this process holds.
struct Held {
  std::ptrdiff_t files = 0;
  std::ptrdiff_t threads = 0;
  std::ptrdiff_t shared_files = 0;     // shared files of all processes of the host
  std::ptrdiff_t shared_mappings = 0;  // mappings of shared memory without a name
  int communicator = 0;                // MPI gives it to a new one: the same as before if all others were given back

  auto fields() const { return std::tie(files, threads, shared_files, shared_mappings, communicator); }
};

std::ptrdiff_t entries(const std::string& folder, const std::string& prefix = "") {
  std::ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().starts_with(prefix)) ++count;
  }
  return count;
}

Held take_stock(const mpi::Communicator& world) {
  world.barrier();
  Held held{.files = entries("/proc/self/fd"),
            .threads = entries("/proc/self/task"),
            .shared_files = entries("/dev/shm", "lockstep-"),
            .shared_mappings = 0,
            .communicator = MPI_Comm_c2f(mpi::Communicator(world.handle()).handle())};
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (contains(line, "memfd:lockstep") || contains(line, "/dev/shm/lockstep")) ++held.shared_mappings;
  }
  world.barrier();
  return held;
}

// Case 109.
TEST_F(LeaksTest, AHundredWrappersLeaveNothingBehind) {
  const std::vector<std::int64_t> widths = {3, 2};
  const auto cycle = [&](int number) {
    const auto collectives = make_collectives(number % 4 == 3 && size() > 1 ? "mpi" : "auto");
    auto model = std::make_shared<Layers>(widths);
    DistributedDataParallel wrapper(model, world_, *collectives, {.shares_parameters = number % 2 == 0});
    auto optimizer = make_optimizer(wrapper.parameters(), {{"name", "sgd"}, {"momentum", "0.5"}});
    for (int step = 0; step < 2; ++step) wrapper.train_step(batch_of(rank(), step, widths), optimizer);
  };
  for (int i = 0; i < 4; ++i) cycle(i);  // value: what is made once for all
  const Held before = take_stock(world_);
  for (int i = 0; i < 100; ++i) cycle(i);
  const Held after = take_stock(world_);
  EXPECT_EQ(after.fields(), before.fields());

  // Memory that is not given back is seen.
  const mpi::Communicator another = world_.split(0);
  const auto collectives = make_collectives();
  const mpi::BucketMemory memory = collectives->allocate_bucket(64);
  const Held more = take_stock(world_);
  EXPECT_NE(more.communicator, after.communicator);
  EXPECT_EQ(more.shared_mappings > after.shared_mappings, size() > 1);
}

}  // namespace leaks_test
}  // namespace lockstep::parallel
