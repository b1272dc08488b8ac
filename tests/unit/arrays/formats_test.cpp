// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>

#include "arrays/array_file.hpp"
#include "support/temporary_folder.hpp"

namespace lockstep::arrays {
namespace formats_test {

using testing::TemporaryFolder;

std::string error_of_path(const std::string& path) {
  try {
    open_arrays(path);
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(path + ": ")) << error.what();
    return error.what();
  }
  return "";
}

TEST(FormatsTest, OtherFormatsAreNamed) {
  using std::string_literals::operator""s;
  const TemporaryFolder folder;
  const std::pair<std::string, const char*> files[] = {
      {"", "empty"},
      {"CDF\x01 and so on", "nccopy -k nc4"},
      {"CDF\x02 and so on", "netCDF-3"},
      {"CDF\x05 and so on", "netCDF-3"},
      {"GRIB and so on", "GRIB"},
      {"\x0E\x03\x13\x01", "HDF4"},
      {"\x1F\x8B\x08 and so on", "gunzip"},
      {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {"\n <!DOCTYPE html><html>", "web page"},
      {"<html><body>404</body></html>", "web page"},
      {"\x89HDF", "truncated HDF5"},
      {"   \n", "neither HDF5"},
      {"t,u,v\n1,2,3\n", "neither HDF5"},
      {"PK\x05\x06"s + std::string(18, '\0'), "without arrays"},
      {"PK\x03\x04 and so on", "zip archive"},
  };
  for (const auto& [bytes, words] : files) {
    folder.write("a", bytes);
    EXPECT_NE(error_of_path(folder / "a").find(words), std::string::npos) << error_of_path(folder / "a");
  }
}

TEST(FormatsTest, FoldersAreNamed) {
  const TemporaryFolder folder;
  EXPECT_NE(error_of_path(folder.path()).find("it is a folder"), std::string::npos);
  folder.write(".zgroup", "{}");
  EXPECT_NE(error_of_path(folder.path()).find("zarr"), std::string::npos);
  EXPECT_NE(error_of_path(folder / "absent").find("No such file"), std::string::npos);
  EXPECT_NE(error_of_path("/dev/null").find("not a regular file"), std::string::npos);
}

TEST(NumberTypeTest, Names) {
  EXPECT_EQ(name_of(NumberType{NumberKind::real, 2}), "float16");
  EXPECT_EQ(name_of(NumberType{NumberKind::signed_integer, 1}), "int8");
  EXPECT_EQ(name_of(NumberType{NumberKind::unsigned_integer, 8}), "uint64");
}

TEST(AttributesTest, NumbersAndTexts) {
  const Attributes attributes = {{"i", std::vector<std::int64_t>{1, -2}},
                                 {"u", std::vector<std::uint64_t>{3}},
                                 {"r", std::vector<double>{0.5}},
                                 {"t", std::vector<std::string>{"a", "b"}}};
  EXPECT_EQ(numbers_of(attributes, "i"), (std::vector<double>{1, -2}));
  EXPECT_EQ(numbers_of(attributes, "u"), std::vector<double>{3});
  EXPECT_EQ(numbers_of(attributes, "r"), std::vector<double>{0.5});
  EXPECT_EQ(numbers_of(attributes, "t"), std::vector<double>());
  EXPECT_EQ(numbers_of(attributes, "x"), std::vector<double>());
  EXPECT_EQ(texts_of(attributes, "t"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(texts_of(attributes, "i"), std::vector<std::string>());
}

}  // namespace formats_test
}  // namespace lockstep::arrays
