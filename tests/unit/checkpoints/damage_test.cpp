// SPDX-License-Identifier: BSD-3-Clause
#include <random>

#include "checkpoints/format/envelope.hpp"
#include "core/system/process.hpp"
#include "support.hpp"

namespace lockstep::checkpoints {
namespace damage_test {

/// A file of about 2.5 MB, its bytes, and where its parts are.
class DamageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Archive archive = sample(1);
    std::vector<std::uint64_t> numbers(300'000);
    std::mt19937_64 random(7);
    for (auto& number : numbers) number = random();
    archive.put("/model/params/big", array_of(DType::int64, {300'000}, numbers));
    file_ = write(directory_ / "ckpt", 1, archive) + "/state.h5";
    good_ = bytes_of(file_);
    std::memcpy(&envelope_, good_.data(), sizeof envelope_);
    ASSERT_EQ(envelope_.file_bytes, good_.size());
  }

  /// The sentence that reading says once the file holds `bytes`.
  std::string error_after(const std::string& bytes) {
    put_bytes(file_, bytes);
    return error_of_read(file_);
  }

  /// The sentence that reading says while `bytes` stand at `offset`.
  std::string error_with(std::size_t offset, const std::string& bytes) {
    patch(offset, bytes);
    const std::string error = error_of_read(file_);
    patch(offset, good_.substr(offset, bytes.size()));
    return error;
  }

  std::size_t find(const std::string& needle) const { return good_.find(needle); }

  void patch(std::size_t offset, const std::string& bytes) {
    std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file << bytes;
  }

  TemporaryFolder directory_;
  std::string file_;
  std::string good_;
  Envelope envelope_;
};

TEST_F(DamageTest, TheUndamagedFileReads) { EXPECT_EQ(error_after(good_), ""); }

TEST_F(DamageTest, EveryFlippedBitOfASampleIsFound) {
  std::mt19937 random(1);
  const std::size_t index = envelope_.index_offset;
  const auto offset_in = [&](std::size_t begin, std::size_t end) {
    return std::uniform_int_distribution<std::size_t>(begin, end - 1)(random);
  };
  for (int i = 0; i < 300; ++i) {
    const std::size_t places[] = {offset_in(0, 120), offset_in(0, kEnvelopeBytes),
                                  offset_in(kEnvelopeBytes, kEnvelopeBytes + 6000), offset_in(0, good_.size()),
                                  offset_in(index, good_.size())};
    const std::size_t offset = places[i % 5];
    const std::string error = error_with(offset, {static_cast<char>(good_[offset] ^ (1 << offset_in(0, 8)))});
    EXPECT_TRUE(error.starts_with(file_ + ": it ")) << "a flipped bit at byte " << offset << ": " << error;
  }
}

TEST_F(DamageTest, EveryZeroedSectorOfASampleIsFound) {
  std::mt19937 random(2);
  for (int i = 0; i < 100; ++i) {
    const std::size_t sectors = i % 2 == 0 ? good_.size() / 512 : 30;  // all sectors, or those of the metadata in front
    const std::size_t offset = std::uniform_int_distribution<std::size_t>(0, sectors - 1)(random) * 512;
    const std::string zeros(512, '\0');
    const bool was_zero = good_.compare(offset, 512, zeros) == 0;
    EXPECT_EQ(error_with(offset, zeros).empty(), was_zero) << "sector at byte " << offset;
  }
}

TEST_F(DamageTest, EveryLengthButTheRightOneIsFound) {
  std::mt19937 random(3);
  for (int i = 0; i < 60; ++i) {
    const std::size_t length = std::uniform_int_distribution<std::size_t>(0, good_.size() - 1)(random);
    EXPECT_NE(error_after(good_.substr(0, length)), "") << "cut at byte " << length;
  }
  for (const std::size_t length : {0, 1, 7, 8, 9, 4095, 4096, 4097}) {
    EXPECT_NE(error_after(good_.substr(0, length)), "") << "cut at byte " << length;
  }
  EXPECT_EQ(error_after(good_.substr(0, good_.size() - 1)), file_ + ": it has " + std::to_string(good_.size() - 1) +
                                                                " bytes instead of " + std::to_string(good_.size()) +
                                                                ": it is truncated");
  EXPECT_EQ(error_after(good_ + "x"), file_ + ": it has " + std::to_string(good_.size() + 1) + " bytes instead of " +
                                          std::to_string(good_.size()) + ": 1 bytes were appended at byte " +
                                          std::to_string(good_.size()));
}

TEST_F(DamageTest, ExchangedStretchesAreFound) {
  std::string bad = good_;
  const std::size_t big = envelope_.index_offset - 2'000'000;
  std::swap_ranges(bad.begin() + static_cast<std::ptrdiff_t>(big),
                   bad.begin() + static_cast<std::ptrdiff_t>(big + 4096),
                   bad.begin() + static_cast<std::ptrdiff_t>(big + 8192));
  EXPECT_NE(error_after(bad), "");
}

TEST_F(DamageTest, DamageIsNamedByBytesAndArray) {
  const std::size_t config = find("[optim]\nlr");
  ASSERT_NE(config, std::string::npos);
  EXPECT_EQ(error_with(config + 3, "x"), file_ + ": it is damaged: bytes " + std::to_string(config) + "-" +
                                             std::to_string(config + 16) +
                                             " (array /meta/config) differ from their digest");
  std::string bad = good_;
  const std::size_t big = envelope_.index_offset - 2'000'000;
  bad.replace(big, 1'900'000, 1'900'000, '\0');
  const std::string error = error_after(bad);
  EXPECT_NE(error.find("(array /model/params/big), "), std::string::npos) << error;
  EXPECT_NE(error.find(" differ from their digests"), std::string::npos) << error;
  EXPECT_EQ(error.find("fc.weight"), std::string::npos) << error;
}

// Two arrays and the metadata between them, all within one MiB: each is told apart.
TEST_F(DamageTest, SmallNeighborsAreDistinguished) {
  const std::size_t config = find("[optim]\nlr");
  std::string bad = good_;
  bad[config] = 'x';
  bad[kEnvelopeBytes] = 'x';
  const std::string error = error_after(bad);
  EXPECT_NE(error.find(" (HDF5 metadata), "), std::string::npos) << error;
  EXPECT_NE(error.find(" (array /meta/config) "), std::string::npos) << error;
  EXPECT_EQ(error.find("/model"), std::string::npos) << error;
}

TEST_F(DamageTest, MetadataAndTableOfDigestsAreNamed) {
  std::string bad = good_;
  bad[kEnvelopeBytes + 9] ^= 1;
  EXPECT_NE(error_after(bad).find(" (HDF5 metadata) differ from their digest"), std::string::npos);
  bad = good_;
  bad.back() ^= 1;
  EXPECT_EQ(error_after(bad), file_ + ": it is damaged: bytes " + std::to_string(envelope_.index_offset) + "-" +
                                  std::to_string(good_.size() - 1) + ", its index, differ from their digest");
}

TEST_F(DamageTest, AnArrayThatNeverReachedTheDiskIsRecognized) {
  std::string bad = good_;
  const std::size_t config = find("[optim]\nlr");
  ASSERT_NE(config, std::string::npos);
  bad.replace(config, 17, 17, '\0');
  EXPECT_EQ(error_after(bad), file_ + ": it is damaged: bytes " + std::to_string(config) + "-" +
                                  std::to_string(config + 16) +
                                  " (array /meta/config) differ from their digest; they are all zero, as after a "
                                  "write that never reached the disk");
}

TEST_F(DamageTest, AnotherVersionIsNamedInOneSentence) {
  envelope_.format_version = 7;
  seal(envelope_);
  std::string other = good_;
  std::memcpy(other.data(), &envelope_, sizeof envelope_);
  EXPECT_EQ(error_after(other), file_ +
                                    ": it has format version 7, but this program reads version 1 only; it was "
                                    "written by lockstep " +
                                    version());
}

TEST_F(DamageTest, AnUncommittedFileIsUnfinished) {
  envelope_.flags = 0;
  seal(envelope_);
  std::string torn = good_;
  std::memcpy(torn.data(), &envelope_, sizeof envelope_);
  EXPECT_EQ(error_after(torn), file_ + ": it is incomplete: its writer was stopped while it saved step 1 (" +
                                   std::to_string(good_.size()) + " of " + std::to_string(good_.size()) +
                                   " bytes exist)");
}

}  // namespace damage_test
}  // namespace lockstep::checkpoints
