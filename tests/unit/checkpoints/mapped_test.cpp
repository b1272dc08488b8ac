// SPDX-License-Identifier: BSD-3-Clause
// Mapped arrays of foreign files have the same bytes as those that are read.
#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>

#include "checkpoints/foreign/foreign.hpp"
#include "support/program.hpp"

namespace lockstep::testing {
namespace mapped_test {

using namespace checkpoints;

constexpr std::size_t kCount = 50000;

class MappedTest : public ::testing::Test {
 protected:
  MappedTest() : values_(kCount) {
    for (std::size_t i = 0; i < kCount; ++i) values_[i] = static_cast<float>(i);
  }

  std::string write(const std::string& suffix) const {
    const std::string path = folder_.path("model" + suffix);
    const auto bytes = std::as_bytes(std::span(values_));
    const Array all{.dtype = DType::float32, .shape = {250, 200}, .bytes = bytes, .owner = nullptr};
    const Array byte{.dtype = DType::uint8, .shape = {3}, .bytes = bytes.first(3), .owner = nullptr};
    const Array half{.dtype = DType::float32, .shape = {25000}, .bytes = bytes.subspan(100000), .owner = nullptr};
    write_foreign(path, *export_kind_of(path), {{"all", all}, {"byte", byte}, {"half", half}}, {});
    return path;
  }

  static bool is_equal(const Archive& a, const Archive& b) {
    if (a.array_paths() != b.array_paths()) return false;
    return std::all_of(a.array_paths().begin(), a.array_paths().end(), [&](const std::string& path) {
      const auto& x = a.array(path).bytes;
      const auto& y = b.array(path).bytes;
      return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size()) == 0;
    });
  }

  std::vector<float> values_;
  TemporaryFolder folder_;
};

TEST_F(MappedTest, ArraysHaveTheSameBytes) {
  for (const char* const suffix : {".safetensors", ".pt", ".npz"}) {
    const std::string path = write(suffix);
    const Archive read = read_foreign(path);
    const Archive mapped = read_foreign(path, {.is_mapped = true});
    EXPECT_TRUE(is_equal(read, mapped)) << suffix;
    for (const std::string& name : mapped.array_paths()) {
      release_pages(mapped.array(name));  // they come back from the file
      release_pages(read.array(name));    // nothing happens to memory of its own
    }
    EXPECT_TRUE(is_equal(read, mapped)) << suffix;
    const auto address = reinterpret_cast<std::uintptr_t>(mapped.array("/all").bytes.data());
    EXPECT_EQ(address % alignof(float), 0U) << suffix;
  }
}

// A value that is written to the file afterwards shows in mapped arrays, but not in arrays that were read.
TEST_F(MappedTest, ArraysAreThePagesOfTheFile) {
  for (const char* const suffix : {".safetensors", ".pt"}) {
    const std::string path = write(suffix);
    const Archive read = read_foreign(path);
    const Archive mapped = read_foreign(path, {.is_mapped = true});
    const std::string bytes = read_file(path);
    std::string pattern(16, '\0');
    std::memcpy(pattern.data(), &values_[1000], 16);
    const std::size_t position = bytes.find(pattern);
    ASSERT_NE(position, std::string::npos);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(position)).write("\0\0\0\0", 4);
    file.close();
    const auto value_in = [](const Archive& archive) {
      float value = 0;
      std::memcpy(&value, archive.array("/all").bytes.data() + 4000, sizeof value);
      return value;
    };
    EXPECT_EQ(value_in(read), 1000.0F) << suffix;
    EXPECT_EQ(value_in(mapped), 0.0F) << suffix;
  }
}

TEST_F(MappedTest, ChangesAreNoticed) {
  const auto error_after = [](const std::string& path, const std::function<void()>& change) -> std::string {
    const Archive mapped = read_foreign(path, {.is_mapped = true});
    require_unchanged(mapped);
    change();
    std::size_t zeros = 0;  // pages that are no longer there read as zeros: the program goes on
    for (const std::string& name : mapped.array_paths()) {
      const auto bytes = mapped.array(name).bytes;
      zeros += static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), std::byte{0}));
    }
    EXPECT_GT(zeros, 0U);
    try {
      require_unchanged(mapped);
      return "";
    } catch (const CheckpointError& error) {
      return error.what();
    }
  };
  for (const char* const suffix : {".safetensors", ".pt"}) {
    const std::string path = write(suffix);
    const std::string bytes = read_file(path);
    EXPECT_EQ(error_after(path, [] {}), "");
    // Another file with this name is not the mapped one.
    EXPECT_EQ(error_after(path,
                          [&] {
                            write_file(path + ".new", "short");
                            std::filesystem::rename(path + ".new", path);
                          }),
              "");
    write_file(path, bytes);
    for (const std::uintmax_t size : {std::uintmax_t{0}, std::uintmax_t{5000}, std::uintmax_t{bytes.size() - 1}}) {
      write_file(path, bytes);
      const std::string error = error_after(path, [&] { std::filesystem::resize_file(path, size); });
      EXPECT_NE(error.find("it was changed while it was read"), std::string::npos) << suffix << " " << error;
      EXPECT_NE(error.find(path), std::string::npos) << error;
    }
    write_file(path, bytes);
    EXPECT_NE(error_after(path, [&] { write_file(path, bytes); }), "") << "written again";
  }
}

TEST_F(MappedTest, ProcessesDivideTheChecksOfRecords) {
  const std::string path = write(".pt");
  std::string bytes = read_file(path);
  std::string pattern(16, '\0');
  std::memcpy(pattern.data(), &values_[1000], 16);
  bytes[bytes.find(pattern)] ^= 1;
  write_file(path, bytes);
  int failures = 0;
  for (const std::size_t part : {0U, 1U, 2U}) {
    try {
      read_foreign(path, {.is_mapped = true, .part = part, .parts = 3});
    } catch (const CheckpointError& error) {
      EXPECT_NE(std::string(error.what()).find("CRC-32"), std::string::npos) << error.what();
      ++failures;
    }
  }
  EXPECT_EQ(failures, 1);
  EXPECT_THROW(read_foreign(path, {.is_mapped = true}), CheckpointError);
}

}  // namespace mapped_test
}  // namespace lockstep::testing
