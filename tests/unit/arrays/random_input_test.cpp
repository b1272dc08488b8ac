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
#include "support/folders.hpp"
#include "support/sampling.hpp"

namespace lockstep::arrays {
namespace random_input_test {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) { return end == 0 ? 0 : random() % end; }

/// Flips, overwrites, cuts, appends or repeats bytes, up to three times.
std::string mutated(std::string bytes, Random& random) {
  for (std::size_t rounds = below(random, 4); rounds > 0; --rounds) {
    const std::size_t position =
        below(random, below(random, 2) == 0 ? std::min<std::size_t>(bytes.size(), 128) : bytes.size());
    switch (below(random, 6)) {
      case 0:
        if (!bytes.empty()) bytes[position] = static_cast<char>(bytes[position] ^ 1 << below(random, 8));
        break;
      case 1:
        if (!bytes.empty()) bytes[position] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(position);
        break;
      case 3:
        for (std::size_t i = 1 + below(random, 32); i > 0; --i) bytes += static_cast<char>(random());
        break;
      case 4:
        bytes.insert(position, bytes.substr(below(random, bytes.size()), below(random, 64)));
        break;
      default:  // extreme numbers
        for (std::size_t i = position; i < std::min(bytes.size(), position + 8); ++i) {
          bytes[i] = below(random, 2) == 0 ? '\xFF' : '\0';
        }
    }
  }
  return bytes;
}

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
  std::size_t unpacked = 0, damaged = 0;
  const std::vector<std::string> chunks = contents_of({seeds}, "");
  ASSERT_GE(chunks.size(), 8U);
  for (const std::string& chunk : chunks) {
    EXPECT_TRUE(fuzz::unpack_chunk(as_bytes(chunk)) || !has_lz4_and_zstd());
    for (std::size_t i = 0; i < cases() / 4; ++i) {
      const bool is_unpacked = fuzz::unpack_chunk(as_bytes(mutated(chunk, random_)));
      ++(is_unpacked ? unpacked : damaged);
    }
  }
  for (std::size_t i = 0; i < cases(); ++i) fuzz::unpack_chunk(as_bytes(random_bytes(below(random_, 100), random_)));
  EXPECT_GT(unpacked, cases() / 8);
  EXPECT_GT(damaged, cases() / 8);
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
    file.set(as_bytes(mutated(files[i % files.size()], random_)));
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
