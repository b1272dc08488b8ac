// SPDX-License-Identifier: BSD-3-Clause
// Damaged chunks, damaged files of NumPy, and attributes of all types: a sample of what the fuzz targets try.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sys/resource.h>

#include "arrays/decompressors.hpp"
#include "fuzz/array_input.hpp"
#include "fuzz/chunk_input.hpp"
#include "support/damage.hpp"
#include "support/folders.hpp"
#include "support/sampling.hpp"

namespace lockstep::arrays {
namespace random_input_test {

namespace fs = std::filesystem;
using testing::below;
using testing::damaged;
using testing::Random;

std::string random_bytes(std::size_t count, Random& random) {
  std::string bytes;
  while (bytes.size() < count) bytes += static_cast<char>(random());
  return bytes;
}

std::span<const std::byte> as_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::size_t cases() { return testing::is_long_run() ? 200'000 : 5'000; }

/// Damage never makes a reader take much memory.
class RandomInputTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_LT(peak_kib() - before_kib_, 512L << 10); }
  static long peak_kib() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  }

  Random random_{testing::test_seed()};

 private:
  long before_kib_ = peak_kib();
};

/// The bytes of files with this ending.
std::vector<std::string> contents_of(const std::vector<fs::path>& folders, const std::string& ending) {
  std::vector<std::string> contents;
  for (const fs::path& folder : folders) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (!entry.path().string().ends_with(ending)) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      contents.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  return contents;
}

TEST_F(RandomInputTest, Chunks) {
  const fs::path seeds = testing::source_root() / "tests/fuzz/chunks";
  std::size_t unpacked = 0, refused = 0;
  const std::vector<std::string> chunks = contents_of({seeds}, "");
  ASSERT_GE(chunks.size(), 8U);
  for (const std::string& chunk : chunks) {
    EXPECT_TRUE(fuzz::unpack_chunk(as_bytes(chunk)) || !has_lz4_and_zstd());
    for (std::size_t i = 0; i < cases() / 4; ++i) {
      const bool is_unpacked = fuzz::unpack_chunk(as_bytes(damaged(chunk, random_, 0)));
      ++(is_unpacked ? unpacked : refused);
    }
  }
  for (std::size_t i = 0; i < cases(); ++i) fuzz::unpack_chunk(as_bytes(random_bytes(below(random_, 100), random_)));
  EXPECT_GT(unpacked, cases() / 8);
  EXPECT_GT(refused, cases() / 8);
}

TEST_F(RandomInputTest, FilesOfNumpy) {
  const std::vector<fs::path> folders = {testing::golden("fields/files/arrays"), testing::golden("fields/malformed"),
                                         testing::golden("data/malformed"), testing::golden("data/sources/npz"),
                                         testing::golden("data/sources/npy")};
  std::vector<std::string> files = contents_of(folders, ".npy");
  for (std::string& archive : contents_of(folders, ".npz")) files.push_back(std::move(archive));
  ASSERT_GT(files.size(), 15U);
  const fuzz::MemoryInput file;
  int read = 0;
  for (std::size_t i = 0; i < cases(); ++i) {
    file.set(as_bytes(damaged(files[i % files.size()], random_, 0)));
    read += fuzz::read_file_of_arrays(file.path()) > 0 ? 1 : 0;
  }
  EXPECT_GT(read, static_cast<int>(cases() / 50));
}

TEST_F(RandomInputTest, AttributesOfArrays) {
  const fuzz::MemoryInput file;
  int read = 0;
  for (std::size_t i = 0; i < cases() / 4; ++i) {
    const std::string input = random_bytes(600 + below(random_, 3000), random_);
    fuzz::AttributeWriter(as_bytes(input)).write(file.path());
    read += fuzz::read_file_of_arrays(file.path());
  }
  EXPECT_GT(read, 0);
  EXPECT_LT(read, static_cast<int>(cases() / 4));
}

}  // namespace random_input_test
}  // namespace lockstep::arrays
