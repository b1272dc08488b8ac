// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/data/dataset.hpp>
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <chrono>
#include <ctime>
#include <malloc.h>
#include <thread>

#include "engine/setup/run_splits.hpp"
#include "support/program.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::engine {
namespace large_list_test {

using data::TemporaryFolder;

constexpr std::int64_t kLines = 1000000;
constexpr std::int64_t kBatch = 32;
constexpr int kPictures = 8;

/// Memory that this process does not share with others, in MB.
double private_mb() {
  malloc_trim(0);
  std::ifstream file("/proc/self/smaps_rollup");
  double total = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Private_")) total += std::stod(line.substr(line.find(':') + 1)) / 1024;
  }
  return total;
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The time that it costs from the opening of the data to the first batch, and this batch.
struct Opening {
  double wall = 0;  // seconds
  double cpu = 0;   // seconds of this process
  double mb = 0;    // additional private memory
  std::int64_t size = 0;
  std::uint64_t digest = 0;
  at::Tensor input;
  at::Tensor target;
};

Opening open_list(const mpi::Communicator& world, const std::string& list, const std::string& cache) {
  const Registry& registry = builtin_registry();
  const Section data = data::section(
      {{"name", "list"}, {"path", list}, {"val_path", list}, {"cache", cache}, {"transform", "resize,size=32,32"}});
  Opening result;
  world.barrier();
  const double mb = private_mb();
  const double wall = wall_seconds();
  const double cpu = cpu_seconds();
  const data::Splits splits = open_splits(world, data, registry, {.seed = 1, .transforms = &registry.transforms});
  result.size = splits.train->size();
  const data::Sampler sampler(result.size, std::min(kBatch, result.size), 1, true);
  const data::Share share = data::share_of(sampler.global_batch_size(), world.rank(), world.size());
  data::Loader loader(splits.train, [&](std::int64_t) { return sampler.draws(0, 0, share); }, 0, 1, {});
  const batch::Batch batch = loader.next();
  result.wall = wall_seconds() - wall;
  result.cpu = cpu_seconds() - cpu;
  result.mb = private_mb() - mb;
  result.digest = splits.train->digest();
  result.input = batch.input().clone();
  result.target = batch.target().clone();
  return result;
}

void write_list(const std::string& path, std::int64_t lines) {
  std::ofstream file(path, std::ios::binary);
  for (std::int64_t i = 0; i < lines; ++i) {
    file << "pictures_of_the_training/" << i % kPictures << ".ppm " << i % 1000 << "\n";
  }
}

// From the cache, a list of a million images costs about as much as one of ten: what all ranks read once is mapped.
TEST(LargeListTest, AMillionImagesStartAsTenDo) {
  const mpi::Communicator world(MPI_COMM_WORLD);
  std::unique_ptr<TemporaryFolder> folder;
  if (world.is_root()) {
    folder = std::make_unique<TemporaryFolder>();
    for (int i = 0; i < kPictures; ++i) {
      data::write_file(*folder, "pictures_of_the_training/" + std::to_string(i) + ".ppm", data::ppm(40, 36, i, 50, 90));
    }
    write_list(folder->path("large.txt"), kLines);
    write_list(folder->path("small.txt"), 10);
    std::this_thread::sleep_for(std::chrono::milliseconds(2200));  // lists that have just changed are not cached
  }
  const std::string path = world.broadcast(folder ? folder->path() : "");
  const std::string cache = path + "/cache";
  // The first opening writes the cache; the second one faults in all code.
  for (const char* list : {"/large.txt", "/small.txt"}) open_list(world, path + list, cache);
  const Opening small = open_list(world, path + "/small.txt", cache);
  const Opening large = open_list(world, path + "/large.txt", cache);
  const Opening plain = open_list(world, path + "/large.txt", "off");

  EXPECT_EQ(large.size, kLines);
  EXPECT_EQ(large.digest, plain.digest);
  EXPECT_TRUE(at::equal(large.input, plain.input));
  EXPECT_TRUE(at::equal(large.target, plain.target));

  // Each rank reads 30 MB and keeps 8 bytes per line, for each of the two splits, without the cache.
  EXPECT_LT(large.mb - small.mb, 40);
  EXPECT_LT(large.cpu - small.cpu, 0.2 * plain.cpu);
  EXPECT_LT(large.wall - small.wall, testing::is_long_run() ? 1 : 3);
  if (world.is_root()) {
    std::printf(
        "to the first batch: %.3f s (CPU %.3f s) and %.1f MB with ten images, %.3f s (%.3f s) and %.1f MB with "
        "a million, %.3f s (%.3f s) and %.1f MB without the cache\n",
        small.wall, small.cpu, small.mb, large.wall, large.cpu, large.mb, plain.wall, plain.cpu, plain.mb);
  }
  world.barrier();  // the root removes the folder
}

}  // namespace large_list_test
}  // namespace lockstep::engine
