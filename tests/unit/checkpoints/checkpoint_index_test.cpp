// SPDX-License-Identifier: BSD-3-Clause
// What can be said of a checkpoint without reading its arrays.
#include "checkpoints/store/checkpoint_index.hpp"

#include <cmath>
#include <limits>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace checkpoint_index_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Statistics of float32 values.
Statistics of(const std::vector<float>& values) {
  return statistics_of(DType::float32, std::as_bytes(std::span(values)));
}

TEST(StatisticsTest, OfAFewNumbers) {
  const Statistics all = of({3, -1, 0, 2});
  EXPECT_EQ(all.min, -1);
  EXPECT_EQ(all.max, 3);
  EXPECT_EQ(all.mean, 1);
  EXPECT_EQ(all.rms, std::sqrt(14.0 / 4));
  EXPECT_EQ(all.zeros, 1U);
  EXPECT_EQ(all.nans + all.infs, 0U);
}

TEST(StatisticsTest, WhatIsNotFiniteIsCountedApart) {
  const auto inf = std::numeric_limits<float>::infinity();
  const Statistics mixed = of({NAN, inf, -inf, 4, -0.0F, NAN, NAN});
  EXPECT_EQ(mixed.nans, 3U);
  EXPECT_EQ(mixed.infs, 2U);
  EXPECT_EQ(mixed.zeros, 1U);
  EXPECT_EQ(mixed.min, 0);
  EXPECT_EQ(mixed.max, 4);
  EXPECT_EQ(mixed.mean, 2);
  EXPECT_EQ(of({}), Statistics{});
  EXPECT_EQ(of({NAN}), (Statistics{.nans = 1}));
}

TEST(StatisticsTest, EveryLengthAndEveryPlaceOfALength) {
  for (std::size_t count = 1; count <= 40; ++count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
    const Statistics up = of(values);
    const auto n = static_cast<double>(count);
    EXPECT_EQ(up.min, 1);
    EXPECT_EQ(up.max, n);
    EXPECT_EQ(up.mean, (n + 1) / 2);                                 // mean of 1..n
    EXPECT_DOUBLE_EQ(up.rms, std::sqrt((n + 1) * (2 * n + 1) / 6));  // sum of squares n (n+1) (2n+1) / 6
    EXPECT_EQ(up.zeros, 0U);
  }
}

TEST(StatisticsTest, OfEveryType) {
  const auto check = [](const Array& array, double min, double max, double mean) {
    const Statistics statistics = statistics_of(array.dtype, array.bytes);
    EXPECT_EQ(statistics.min, min) << name_of(array.dtype);
    EXPECT_EQ(statistics.max, max) << name_of(array.dtype);
    EXPECT_EQ(statistics.mean, mean) << name_of(array.dtype);
  };
  check(array_of<double>(DType::float64, {2}, {1e300, -1e300}), -1e300, 1e300, 0);
  check(array_of<std::uint16_t>(DType::float16, {2}, {0x3C00, 0xC200}), -3, 1, -1);   // 1, -3
  check(array_of<std::uint16_t>(DType::bfloat16, {2}, {0x3F80, 0xC040}), -3, 1, -1);  // 1, -3
  check(array_of<std::int8_t>(DType::int8, {2}, {-128, 127}), -128, 127, -0.5);
  check(array_of<std::int16_t>(DType::int16, {2}, {-300, 100}), -300, 100, -100);
  check(array_of<std::int32_t>(DType::int32, {2}, {-70000, 10000}), -70000, 10000, -30000);
  check(array_of<std::int64_t>(DType::int64, {2}, {1LL << 40, 0}), 0, 0x1p40, 0x1p39);
  check(array_of<std::uint8_t>(DType::uint8, {2}, {255, 1}), 1, 255, 128);
  check(array_of<std::uint8_t>(DType::boolean, {4}, {1, 0, 1, 1}), 0, 1, 0.75);
  check(array_of<float>(DType::complex64, {2}, {1, 2, 3, -4}), -4, 3, 0.5);
  check(array_of<double>(DType::complex128, {1}, {5, 7}), 5, 7, 6);
  check(array_of<std::uint16_t>(DType::float16, {1}, {0x7C00}), 0, 0, 0);  // infinite
  EXPECT_EQ(statistics_of(DType::bfloat16, array_of<std::uint16_t>(DType::bfloat16, {1}, {0x7FC0}).bytes).nans, 1U);
}

TEST(StatisticsTest, LargeValuesDoNotOverflowTheSums) {
  EXPECT_EQ(of({3e38F, -3e38F}).min, static_cast<double>(-3e38F));
  EXPECT_LT(of({3e38F, -3e38F}).rms, kInfinity);
}

class CheckpointIndexTest : public ::testing::Test {
 protected:
  CheckpointIndexTest() {
    archive_ = sample(5);
    archive_.put("/model/params/empty", array_of<float>(DType::float32, {0, 3}, {}));
    archive_.put("/model/params/large", array_of(DType::float64, {400000}, std::vector<double>(400000, 0.5)));
    archive_.link("/model/params/tied", "/model/params/fc.weight");
    folder_ = write(directory_.path(), 5, archive_);
  }

  TemporaryFolder directory_;
  Archive archive_;
  std::string folder_;
};

TEST_F(CheckpointIndexTest, TheIndexSaysWhatTheArraysAre) {
  const CheckpointIndex contents = read_checkpoint_index(folder_);
  EXPECT_EQ(contents.step, 5);
  EXPECT_EQ(contents.writer.rfind("lockstep ", 0), 0U);
  EXPECT_EQ(contents.file_bytes, std::filesystem::file_size(folder_ + "/state.h5"));
  ASSERT_EQ(contents.arrays.size(), archive_.array_paths().size());
  for (std::size_t i = 0; i < contents.arrays.size(); ++i) {
    const IndexedArray& info = contents.arrays[i];
    const Array& array = archive_.array(info.path);
    EXPECT_EQ(info.path, archive_.array_paths()[i]);
    EXPECT_EQ(info.dtype, array.dtype);
    EXPECT_EQ(info.shape, array.shape);
    EXPECT_EQ(info.nbytes, array.bytes.size());
    EXPECT_EQ(info.digest, array_digest(array.bytes)) << info.path;
    EXPECT_EQ(info.statistics.max, statistics_of(array.dtype, array.bytes).max) << info.path;
  }
  EXPECT_EQ(contents.arrays.back().first_path, "/model/params/fc.weight");
  EXPECT_EQ(contents.arrays.front().first_path, "");
}

TEST_F(CheckpointIndexTest, OneArrayAndTheGroupsAlone) {
  for (const std::string& path : archive_.array_paths()) {
    const Array array = read_array(folder_, path);
    EXPECT_EQ(array.shape, archive_.array(path).shape);
    EXPECT_TRUE(std::ranges::equal(array.bytes, archive_.array(path).bytes)) << path;
  }
  EXPECT_NE(error_of([&] { read_array(folder_, "/model/params/nothing"); }).find("the array does not exist"),
            std::string::npos);
  const Archive groups = read_groups(folder_);
  EXPECT_TRUE(groups.array_paths().empty());
  EXPECT_EQ(groups.group_paths(), archive_.group_paths());
  EXPECT_EQ(groups.real("/optim/0", "lr"), 0.1);
  EXPECT_EQ(groups.integer("/", "step"), 5);
}

TEST_F(CheckpointIndexTest, DamageElsewhereDoesNotMatterAndDamageThereIsNamed) {
  std::string bytes = bytes_of(folder_ + "/state.h5");
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);  // inside the large array
  put_bytes(folder_ + "/state.h5", bytes);
  EXPECT_EQ(read_checkpoint_index(folder_).arrays.size(), archive_.array_paths().size());
  EXPECT_EQ(error_of([&] { read_array(folder_, "/model/params/fc.bias"); }), "");
  const std::string error = error_of([&] { read_array(folder_, "/model/params/large"); });
  EXPECT_NE(error.find("it is damaged: bytes"), std::string::npos) << error;
  EXPECT_NE(error.find("(array /model/params/large) differ from their digest"), std::string::npos) << error;
}

TEST_F(CheckpointIndexTest, ATiedWeightIsStoredOnce) {
  const Archive read_back = read(folder_);
  EXPECT_EQ(read_back.first_path_of("/model/params/tied"), "/model/params/fc.weight");
  EXPECT_EQ(read_back.array("/model/params/tied").bytes.data(),
            read_back.array("/model/params/fc.weight").bytes.data());
  EXPECT_TRUE(same(archive_, read_back));
}

TEST(ArchiveLinkTest, OnlyToAnArrayOfItsOwn) {
  Archive archive = sample(1);
  archive.link("/model/params/tied", "/model/params/fc.weight");
  EXPECT_THROW(archive.link("/x", "/model/params/tied"), std::logic_error);
  EXPECT_THROW(archive.link("/x", "/nothing"), std::logic_error);
  EXPECT_THROW(archive.link("/model/params/fc.bias", "/model/params/fc.weight"), std::logic_error);
}

}  // namespace checkpoint_index_test
}  // namespace lockstep::checkpoints
