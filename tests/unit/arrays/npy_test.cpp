// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <cstring>

#include "arrays/array_file.hpp"
#include "checkpoints/foreign/zip.hpp"
#include "support/temporary_folder.hpp"
#include "unit/arrays/npy_bytes.hpp"

namespace lockstep::arrays {
namespace npy_test {

using testing::TemporaryFolder;

template <class Value>
std::vector<Value> read_values(const ArrayFile& file, const std::string& name, const Slab& slab) {
  const ArrayInfo info = file.find(name);
  EXPECT_EQ(info.type.bytes, sizeof(Value));
  std::vector<Value> values(static_cast<std::size_t>(size_of(slab)));
  file.read(info, slab, std::as_writable_bytes(std::span(values)));
  return values;
}

std::string text_of_numbers(const std::vector<std::int16_t>& numbers, bool is_big = false) {
  std::string text;
  for (const std::int16_t number : numbers) {
    const char low = static_cast<char>(number & 255), high = static_cast<char>(number >> 8);
    text += is_big ? high : low;
    text += is_big ? low : high;
  }
  return text;
}

using Shorts = std::vector<std::int16_t>;

TEST(NpyTest, EveryVersionOfTheHeader) {
  const TemporaryFolder folder;
  for (const int version : {1, 2, 3}) {
    folder.write("a.npy", npy_bytes("<i2", "2, 3", text_of_numbers({0, 1, 2, 3, 4, 500}), false, version));
    const auto file = open_arrays(folder / "a.npy");
    EXPECT_EQ(file->names(), std::vector<std::string>{""});
    EXPECT_EQ(read_values<std::int16_t>(*file, "", {{0, 0}, {2, 3}, {1, 1}}), (Shorts{0, 1, 2, 3, 4, 500}));
    EXPECT_EQ(read_values<std::int16_t>(*file, "", {{0, 0}, {2, 2}, {1, 2}}), (Shorts{0, 2, 3, 500}));
  }
  folder.write("a.npy", npy_bytes("<i2", "1,", "ab", false, 4));
  EXPECT_THROW(open_arrays(folder / "a.npy"), DataError);
}

TEST(NpyTest, ColumnMajorAndBigEndian) {
  const TemporaryFolder folder;
  folder.write("a.npy", npy_bytes(">i2", "2, 3", text_of_numbers({0, 3, 1, 4, 2, 500}, true), true));
  const auto file = open_arrays(folder / "a.npy");
  EXPECT_TRUE(file->find("").type.is_big_endian);
  EXPECT_EQ(read_values<std::int16_t>(*file, "", {{0, 0}, {2, 3}, {1, 1}}), (Shorts{0, 1, 2, 3, 4, 500}));
  EXPECT_EQ(read_values<std::int16_t>(*file, "", {{1, 0}, {1, 2}, {1, 2}}), (Shorts{3, 500}));
}

TEST(NpyTest, TypesByName) {
  const TemporaryFolder folder;
  const std::string bytes(8, '\1');
  for (const auto& [descr, name] : {std::pair{"<f2", "float16"},
                                    {"<f4", "float32"},
                                    {">f8", "float64"},
                                    {"|i1", "int8"},
                                    {"<u2", "uint16"},
                                    {"<u4", "uint32"},
                                    {"<u8", "uint64"},
                                    {"|b1", "uint8"}}) {
    const std::string elements = bytes.substr(0, std::strlen(descr) > 0 ? static_cast<std::size_t>(descr[2] - '0') : 0);
    folder.write("a.npy", npy_bytes(descr, "", elements));
    EXPECT_EQ(name_of(open_arrays(folder / "a.npy")->find("").type), name);
  }
}

std::string error_of_file(const TemporaryFolder& folder, const std::string& bytes) {
  folder.write("bad.npy", bytes);
  try {
    open_arrays(folder / "bad.npy");
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with((folder / "bad.npy") + ": ")) << error.what();
    return error.what();
  }
  return "";
}

TEST(NpyTest, RefusedTypesAreNamed) {
  const TemporaryFolder folder;
  for (const auto& [descr, word] : {std::pair{"|O", "objects"},
                                    {"<c8", "complex"},
                                    {"<c16", "complex"},
                                    {"<U3", "texts"},
                                    {"|S4", "texts"},
                                    {"<M8[ns]", "dates"},
                                    {"|V6", "records"},
                                    {"<f16", "size"},
                                    {"?i4", "unknown"},
                                    {"<q7", "unknown"}}) {
    EXPECT_NE(error_of_file(folder, npy_bytes(descr, "1,", std::string(16, '\0'))).find(word), std::string::npos)
        << descr;
  }
}

TEST(NpyTest, DamagedFiles) {
  const TemporaryFolder folder;
  const std::string good = npy_bytes("<i2", "2, 3", text_of_numbers({0, 1, 2, 3, 4, 5}));
  EXPECT_NE(error_of_file(folder, good.substr(0, good.size() - 1)).find("needs 12 bytes, but there are 11"),
            std::string::npos);
  for (const std::size_t end : {std::size_t{7}, std::size_t{9}, std::size_t{40}}) {
    EXPECT_NE(error_of_file(folder, good.substr(0, end)), "") << end;
  }
  // Nothing is allocated for a promise.
  EXPECT_NE(error_of_file(folder, npy_bytes("<f8", "4611686018427387904, 4", "")).find("2^63"), std::string::npos);
  EXPECT_NE(error_of_file(folder, npy_bytes("<f8", "99999999999,", "")).find("truncated"), std::string::npos);
}

TEST(NpyTest, AShorterFileIsNoticed) {
  const TemporaryFolder folder;
  folder.write("a.npy", npy_bytes("<i2", "3,", text_of_numbers({0, 1, 2})));
  const auto file = open_arrays(folder / "a.npy");
  std::filesystem::resize_file(folder / "a.npy", 20);
  EXPECT_THROW(read_values<std::int16_t>(*file, "", {{0}, {3}, {1}}), DataError);
}

TEST(NpzTest, EachMemberIsAnArray) {
  const TemporaryFolder folder;
  {
    checkpoints::NewFile out(folder / "a.npz");
    checkpoints::ZipWriter zip(out);
    zip.add("t.npy", npy_bytes("<i2", "2, 3", text_of_numbers({0, 1, 2, 3, 4, 5})));
    zip.add("names.npy", npy_bytes("|O", "1,", "pickle"));
    zip.add("short.npy", npy_bytes("<i2", "4,", "ab"));
    zip.add("notes.txt", std::string("x"));
    zip.finish();
    out.close();
  }
  const auto file = open_arrays(folder / "a.npz");
  EXPECT_EQ(file->names(), (std::vector<std::string>{"names", "short", "t"}));
  EXPECT_EQ(read_values<std::int16_t>(*file, "t", {{0, 1}, {2, 2}, {1, 1}}), (Shorts{1, 2, 4, 5}));
  const auto error_of_array = [&](const std::string& name) -> std::string {
    try {
      file->find(name);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of_array("names").find("a.npz: variable 'names': its elements (|O) are Python objects"),
            std::string::npos);
  EXPECT_NE(error_of_array("short").find("truncated"), std::string::npos);
  EXPECT_NE(error_of_array("u").find("there is no variable 'u'; there are names, short, t"), std::string::npos);
}

}  // namespace npy_test
}  // namespace lockstep::arrays
