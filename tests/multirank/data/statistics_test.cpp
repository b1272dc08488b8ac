// SPDX-License-Identifier: BSD-3-Clause
// The statistics of normalize,mean=auto: of rank 0, or of a checkpoint.
#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/registry.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <span>

#include "data/stores/image_splits.hpp"
#include "engine/setup/run_splits.hpp"
#include "unit/data/image_files.hpp"

namespace lockstep::engine {
namespace statistics_test {

using data::ChannelStatistics;
using data::TemporaryFolder;

TEST(StatisticsTest, AllRanksUseThoseOfRankZeroOrTheGivenOnes) {
  const mpi::Communicator world(MPI_COMM_WORLD);
  const TemporaryFolder folder;  // each rank has another, as on hosts with disks of their own
  data::write_file(folder, "a/1.ppm", data::ppm(2, 2, 0, 51, 10 * world.rank()));
  data::write_file(folder, "b/2.ppm", data::ppm(2, 2, 255, 153, 10 * world.rank() + 20));
  const Registry& registry = builtin_registry();
  const Section section = data::section({{"name", "folder"},
                                         {"path", folder.path()},
                                         {"cache", "off"},
                                         {"val_fraction", "0"},
                                         {"transform", "normalize,mean=auto"}});
  const data::OpenOptions options{.transforms = &registry.transforms};
  const data::Splits measured = open_splits(world, section, registry, options);
  const auto found = data::statistics_of(*measured.train);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->mean, (std::vector<double>{127.5 / 255, 102.0 / 255, 10.0 / 255}));
  EXPECT_EQ(found->std, (std::vector<double>{127.5 / 255, 51.0 / 255, 10.0 / 255}));
  EXPECT_EQ(data::transform_of(*measured.train), (std::vector<std::string>{"normalize,mean=auto"}));

  std::optional<ChannelStatistics> stored;
  if (world.is_root()) stored = ChannelStatistics{.mean = {0, 0, 0.5}, .std = {1, 2, 0.25}};
  stored = broadcast(world, stored);
  const data::Splits given = open_splits(world, section, registry, options, stored);
  EXPECT_EQ(data::statistics_of(*given.train)->mean, (std::vector<double>{0, 0, 0.5}));
  const at::Tensor input = data::get(*given.train, {0}).input();
  EXPECT_EQ(data::values_of<float>(input).front(), 0);
  EXPECT_FLOAT_EQ(data::values_of<float>(input)[4], 0.1F);
  EXPECT_FLOAT_EQ(data::values_of<float>(input)[8], (static_cast<float>(10 * world.rank()) / 255 - 0.5F) * 4);
  EXPECT_FALSE(broadcast(world, std::nullopt).has_value());
}

checkpoints::Array array_of(std::span<const double> numbers) {
  return {.dtype = DType::float64, .shape = {std::ssize(numbers)}, .bytes = std::as_bytes(numbers), .owner = nullptr};
}

TEST(StatisticsTest, MalformedOnesInACheckpointAreAnError) {
  const std::vector<double> good = {0.5, 0.25};
  const auto stored = [](const std::vector<double>& mean, const std::vector<double>& std) {
    checkpoints::Archive archive;
    archive.put(kStatisticsMean, array_of(mean));
    archive.put(kStatisticsStd, array_of(std));
    return stored_statistics(archive);
  };
  EXPECT_EQ(stored(good, good).value().std, good);
  EXPECT_FALSE(stored_statistics(checkpoints::Archive()).has_value());
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THROW(stored(good, {0.5}), CheckpointError);
  EXPECT_THROW(stored(good, {0.5, 0}), CheckpointError);
  EXPECT_THROW(stored({nan, 0}, good), CheckpointError);
  EXPECT_THROW(stored({}, {}), CheckpointError);
  checkpoints::Archive without_std;
  without_std.put(kStatisticsMean, array_of(good));
  EXPECT_THROW(stored_statistics(without_std), CheckpointError);
  checkpoints::Archive of_text;
  of_text.put(kStatisticsMean, checkpoints::text_array("0.5"));
  EXPECT_THROW(stored_statistics(of_text), CheckpointError);
}

}  // namespace statistics_test
}  // namespace lockstep::engine
