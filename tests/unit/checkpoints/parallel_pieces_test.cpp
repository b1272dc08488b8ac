// SPDX-License-Identifier: BSD-3-Clause
// Large files are written, read and checked by several threads, and arrays are read straight to where they belong.
#include <atomic>
#include <cstddef>
#include <numeric>

#include "checkpoints/format/index.hpp"
#include "checkpoints/format/state_file.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace shares_test {

constexpr std::int64_t kCount = 5'000'000;  // int64 elements: 40 MB, five shares' worth

Archive large(std::int64_t step) {
  Archive archive = sample(step);
  std::vector<std::int64_t> numbers(kCount);
  std::iota(numbers.begin(), numbers.end(), step);
  archive.put("/model/params/big", array_of(DType::int64, {kCount}, numbers));
  archive.put("/model/params/small", array_of<float>(DType::float32, {2}, {-1, -2}));
  return archive;
}

std::vector<Piece> pieces(std::size_t count, std::uint64_t nbytes) {
  return std::vector<Piece>(count, Piece{.offset = 0, .nbytes = nbytes, .array = 0});
}

TEST(SharesTest, EveryPieceIsInOneShare) {
  for (const std::size_t count : {0, 1, 7, 100}) {
    for (int threads = 1; threads <= 4; ++threads) {
      std::vector<std::atomic<int>> visits(count);
      std::atomic<int> shares = 0;
      for_each_parallel_piece(pieces(count, std::uint64_t{1} << 20), threads, [&](std::size_t first, std::size_t last) {
        ++shares;
        for (std::size_t i = first; i < last; ++i) ++visits[i];
      });
      for (const auto& visit : visits) EXPECT_EQ(visit, 1);
      EXPECT_EQ(shares, count == 100 ? threads : 1) << "8 MiB at least are worth a thread";
    }
  }
}

TEST(SharesTest, TheFirstFailureIsThrown) {
  const auto fail = [](std::size_t first, std::size_t) {
    if (first > 0) throw CheckpointError(first < 50 ? "second" : "later");
  };
  EXPECT_EQ(error_of([&] { for_each_parallel_piece(pieces(100, std::uint64_t{1} << 20), 4, fail); }), "second");
}

TEST(SharesTest, ThreadsWriteTheSameBytes) {
  const TemporaryFolder folder;
  const Archive archive = large(3);
  for (int threads = 1; threads <= 4; ++threads) {
    write_state_file(folder / std::to_string(threads), 3, archive, {}, threads);
    EXPECT_TRUE(bytes_of(folder / "1") == bytes_of(folder / std::to_string(threads))) << threads;
  }
}

TEST(SharesTest, ThreadsFindTheSameDamage) {
  const TemporaryFolder folder;
  const std::string file = folder / "state.h5";
  write_state_file(file, 3, large(3), {}, 4);
  std::string bytes = bytes_of(file);
  for (const std::size_t position : {bytes.size() - 5'000'000, std::size_t{9'000'000}}) {
    bytes[position] = static_cast<char>(bytes[position] ^ 1);
    put_bytes(file, bytes);
    const std::string error = error_of_read(file);
    EXPECT_NE(error.find("/model/params/big"), std::string::npos) << error;
    for (int threads = 1; threads <= 4; ++threads) EXPECT_EQ(error_of([&] { verify(file, threads); }), error);
  }
}

TEST(SharesTest, ArraysAreReadIntoTheirTargets) {
  const TemporaryFolder folder;
  const std::string saved = write(folder.path(), 3, large(3));
  std::vector<std::int64_t> big(kCount, -7);
  std::vector<float> small(2, -7);
  std::vector<float> other(5, -7);
  const auto target = [](auto& values, bool is_read_here = true) {
    return RestoreTarget{.memory = std::as_writable_bytes(std::span(values)), .is_read_here = is_read_here};
  };
  const Archive archive = read(saved, {{"/model/params/big", target(big)},
                                       {"/model/params/small", target(small, false)},
                                       {"/model/params/fc.bias", target(other)},
                                       {"/not/there", target(other)}});
  EXPECT_EQ(archive.array("/model/params/big").bytes.data(), std::as_bytes(std::span(big)).data());
  EXPECT_EQ(big.back(), kCount + 2);
  EXPECT_EQ(archive.array("/model/params/small").bytes.data(), std::as_bytes(std::span(small)).data());
  EXPECT_EQ(small, (std::vector<float>{-7, -7})) << "another process reads it";
  EXPECT_EQ(other, std::vector<float>(5, -7)) << "of another size";
  EXPECT_EQ(values_of<float>(archive.array("/model/params/fc.bias")), (std::vector<float>{1, 2, 3}));
}

TEST(SharesTest, ArraysAreLeftOut) {
  const TemporaryFolder folder;
  const std::string saved = write(folder.path(), 3, large(3));
  const Archive archive = read(saved, {{"/model/params/big", RestoreTarget{.is_left_out = true}}});
  EXPECT_FALSE(archive.has("/model/params/big"));
  EXPECT_EQ(values_of<float>(archive.array("/model/params/fc.bias")), (std::vector<float>{1, 2, 3}));
  // An array that is left out is not read, so that damage in it is not found.
  std::string bytes = bytes_of(saved + "/state.h5");
  bytes[bytes.size() - 5'000'000] = static_cast<char>(bytes[bytes.size() - 5'000'000] ^ 1);
  put_bytes(saved + "/state.h5", bytes);
  EXPECT_NO_THROW(read(saved, {{"/model/params/big", RestoreTarget{.is_left_out = true}}}));
  EXPECT_THROW(read(saved), CheckpointError);
}

}  // namespace shares_test
}  // namespace lockstep::checkpoints
