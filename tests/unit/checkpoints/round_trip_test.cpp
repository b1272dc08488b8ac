// SPDX-License-Identifier: BSD-3-Clause
#include <chrono>
#include <ctime>
#include <limits>
#include <thread>

#include "support.hpp"

namespace lockstep::checkpoints {
namespace round_trip_test {

Archive write_and_read(const Archive& archive) {
  const TemporaryFolder directory;
  return read(write(directory / "ckpt", 1, archive));
}

/// `count` elements of any bits at all: NaN payloads and denormals must survive, too.
Array any_bits(DType dtype, std::int64_t count) {
  std::vector<std::uint8_t> bytes(size_of(dtype) * static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = dtype == DType::boolean ? i % 2 : static_cast<std::uint8_t>(i * 37 + 251);
  }
  Array array = array_of(DType::uint8, {}, bytes);
  array.dtype = dtype;
  array.shape = {count};
  return array;
}

TEST(RoundTripTest, EveryDTypeKeepsItsBits) {
  Archive archive;
  for (const DType dtype : kAllDTypes) archive.put("/" + std::string(name_of(dtype)), any_bits(dtype, 300));
  const Archive back = write_and_read(archive);
  EXPECT_TRUE(same(archive, back));
  EXPECT_EQ(back.array_paths().size(), kAllDTypes.size());
  EXPECT_EQ(back.array("/bfloat16").dtype, DType::bfloat16);
}

TEST(RoundTripTest, ScalarsAndArraysWithoutElements) {
  Archive archive;
  for (const DType dtype : kAllDTypes) {
    const std::string name(name_of(dtype));
    Array scalar = any_bits(dtype, 1);
    scalar.shape = {};
    archive.put("/scalar/" + name, scalar);
    archive.put("/none/" + name, Array{.dtype = dtype, .shape = {0}, .bytes = {}, .owner = nullptr});
  }
  archive.put("/none/deep", Array{.dtype = DType::float32, .shape = {3, 0, 5}, .bytes = {}, .owner = nullptr});
  archive.put("/text", text_array(""));
  const Archive back = write_and_read(archive);
  EXPECT_TRUE(same(archive, back));
  EXPECT_EQ(back.array("/none/deep").shape, (std::vector<std::int64_t>{3, 0, 5}));
  EXPECT_TRUE(back.array("/scalar/float32").shape.empty());
  EXPECT_EQ(text_of(back.array("/text")), "");
}

TEST(RoundTripTest, ShapesOfManyDimensions) {
  Archive archive;
  archive.put("/w", array_of<std::int32_t>(DType::int32, {1, 2, 1, 3, 1}, {1, 2, 3, 4, 5, 6}));
  archive.put("/deep", array_of<std::uint8_t>(DType::uint8, std::vector<std::int64_t>(32, 1), {9}));
  EXPECT_TRUE(same(archive, write_and_read(archive)));
}

TEST(RoundTripTest, NamesWithDotsSlashesPercentAndUnicode) {
  const std::vector<std::string> names = {"layer1.0.conv.weight", "a/b", "50%", ".", "..", "...",
                                          "schön 重み",           " ",   "x\ty"};
  Archive archive;
  for (const std::string& name : names) archive.put("/p/" + encode_name(name), text_array(name));
  archive.set("/p", "größe 重", std::string("schön"));
  const Archive back = write_and_read(archive);
  EXPECT_TRUE(same(archive, back));
  std::vector<std::string> decoded;
  for (const std::string& part : back.arrays_in("/p")) decoded.push_back(decode_name(part));
  EXPECT_EQ(decoded, names);
}

TEST(RoundTripTest, AttributesOfEveryTypeOnGroupsAndArrays) {
  Archive archive = sample(1);
  for (const std::string path : {"/", "/optim/0", "/model/params/fc.bias"}) {
    archive.set(path, "least", std::numeric_limits<std::int64_t>::min());
    archive.set(path, "most", std::numeric_limits<std::int64_t>::max());
    archive.set(path, "third", 1.0 / 3);
    archive.set(path, "infinite", -std::numeric_limits<double>::infinity());
    archive.set(path, "empty", std::string());
    archive.set(path, "long", std::string(60'000, 'x'));
  }
  const Archive back = write_and_read(archive);
  EXPECT_TRUE(same(archive, back));
  EXPECT_EQ(back.real("/optim/0", "third"), 1.0 / 3);
  EXPECT_EQ(back.text("/", "empty"), "");
}

TEST(RoundTripTest, OrderIsKept) {
  Archive archive;
  archive.set("/late", "first of all", std::int64_t{1});
  archive.add_group("/empty/inside");
  for (const std::string name : {"zebra", "apple", "mango"}) {
    for (int i = 12; i >= 0; --i) archive.put("/" + name + "/" + std::to_string(i), text_array(name));
  }
  archive.put("/late/x", text_array("x"));
  archive.put("/zebra/last", text_array("last"));
  const Archive back = write_and_read(archive);
  EXPECT_TRUE(same(archive, back));
  EXPECT_EQ(back.groups_in("/"), (std::vector<std::string>{"late", "empty", "zebra", "apple", "mango"}));
  EXPECT_EQ(back.groups_in("/empty"), (std::vector<std::string>{"inside"}));
  EXPECT_EQ(back.arrays_in("/zebra").back(), "last");
}

TEST(RoundTripTest, AnEmptyArchive) {
  const Archive back = write_and_read(Archive());
  EXPECT_TRUE(back.array_paths().empty());
  EXPECT_TRUE(back.group_paths().empty());
}

// More than one MiB, so that arrays have several digests, beside small ones that share a MiB.
TEST(RoundTripTest, LargeAndSmallArraysSideBySide) {
  Archive archive;
  for (int i = 0; i < 7; ++i) {
    archive.put("/large" + std::to_string(i), any_bits(DType::float32, 300'000 + i));
    archive.put("/small" + std::to_string(i), any_bits(DType::int16, 1 + i));
    archive.put("/middle" + std::to_string(i), any_bits(DType::uint8, 100'000 * i + 3));
  }
  EXPECT_TRUE(same(archive, write_and_read(archive)));
}

TEST(RoundTripTest, ManyArraysInOneGroup) {
  Archive archive;
  for (int i = 0; i < 2000; ++i) archive.put("/p/" + std::to_string(i), any_bits(DType::uint8, i % 5));
  EXPECT_TRUE(same(archive, write_and_read(archive)));
}

TEST(RoundTripTest, BytesAreAlignedForAnyUse) {
  const Archive back = write_and_read(sample(3));
  for (const std::string& path : back.array_paths()) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(back.array(path).bytes.data()) % 64, 0u) << path;
  }
}

TEST(RoundTripTest, ArraysOutliveTheArchive) {
  Array kept;
  {
    const Archive back = write_and_read(sample(3));
    kept = back.array("/model/params/fc.bias");
  }
  EXPECT_EQ(values_of<float>(kept), (std::vector<float>{1, 2, 3}));
}

// Holds in another second, too: nothing in a file tells the time.
TEST(RoundTripTest, EqualArchivesGiveEqualBytesAndOthersDoNot) {
  const TemporaryFolder directory;
  const std::string one = bytes_of(write(directory / "a", 5, sample(5)) + "/state.h5");
  const std::time_t then = std::time(nullptr);
  while (std::time(nullptr) == then) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string two = bytes_of(write(directory / "b", 5, sample(5)) + "/state.h5");
  const std::string other = bytes_of(write(directory / "c", 5, sample(6)) + "/state.h5");
  EXPECT_FALSE(one.empty());
  EXPECT_TRUE(one == two);
  EXPECT_FALSE(one == other);
}

}  // namespace round_trip_test
}  // namespace lockstep::checkpoints
