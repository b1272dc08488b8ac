// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>
#include <lockstep/mpi/collectives.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "mpi/host/host_collectives.hpp"

namespace lockstep::mpi {
namespace collectives_test {

TEST(SliceTest, SlicesCoverEverythingOnceInOrder) {
  for (const std::size_t element_bytes : {1U, 2U, 4U, 8U, 16U}) {
    const std::size_t block = 64 / element_bytes;
    for (const int parts : {1, 2, 3, 4, 7, 16}) {
      for (const std::size_t count : {0U, 1U, 2U, 15U, 16U, 17U, 63U, 64U, 65U, 1000U, 4096U, 4097U}) {
        std::size_t end = 0;
        std::size_t max_blocks = 0;
        std::size_t fewest_blocks = count;
        for (int part = 0; part < parts; ++part) {
          const Slice slice = slice_of(count, part, parts, element_bytes);
          EXPECT_EQ(slice.begin, end);
          end = slice.begin + slice.count;
          if (end < count) {
            EXPECT_EQ(end % block, 0U);
          }
          max_blocks = std::max(max_blocks, (slice.count + block - 1) / block);
          fewest_blocks = std::min(fewest_blocks, (slice.count + block - 1) / block);
        }
        EXPECT_EQ(end, count);
        EXPECT_LE(max_blocks, fewest_blocks + 1) << count << " elements in " << parts << " parts";
      }
    }
  }
}

TEST(SliceTest, GivesTheOddBlocksToTheFirstSlices) {
  // 100 floats are 7 blocks of 16, the last with 4 elements.
  EXPECT_EQ(slice_of(100, 0, 3, 4).count, 48U);
  EXPECT_EQ(slice_of(100, 1, 3, 4).begin, 48U);
  EXPECT_EQ(slice_of(100, 1, 3, 4).count, 32U);
  EXPECT_EQ(slice_of(100, 2, 3, 4).begin, 80U);
  EXPECT_EQ(slice_of(100, 2, 3, 4).count, 20U);
}

TEST(CommKeysTest, DeclareBackendAndTimeOut) {
  Section section = Section::with_defaults("comm", CommSettings::keys());
  const CommSettings settings = CommSettings::from(section);
  EXPECT_EQ(settings.backend, CommSettings().backend);
  EXPECT_EQ(settings.timeout_s, CommSettings().timeout_s);
  EXPECT_EQ(settings.hosts, CommSettings().hosts);
  for (const char* backend : {"auto", "self", "shm", "mpi", "hierarchical", "nccl"}) {
    EXPECT_NO_THROW(section.set("backend", backend, "test"));
  }
  EXPECT_THROW(section.set("backend", "gloo", "test"), ConfigError);
}

// Case 99. A wait without an end does not exist: every wait has a deadline, and a deadline is a positive number.
TEST(CommKeysTest, ATimeOutIsAPositiveNumber) {
  Section section = Section::with_defaults("comm", CommSettings::keys());
  for (const char* text : {"abc", "-1", "0", "-0", "", "1e999", "inf", "nan", "5s"}) {
    EXPECT_THROW(section.set("timeout_s", text, "test"), ConfigError) << text;
  }
  for (const char* text : {"0.5", "2147483647", "4294967295"}) {
    EXPECT_NO_THROW(section.set("timeout_s", text, "test")) << text;
  }
}

TEST(SelfCollectivesTest, RefusesWhatMakesNoSense) {
  const auto self = make_self_collectives();
  float value = 3;
  EXPECT_THROW(self->wait({1}), std::logic_error);
  EXPECT_THROW(self->start_all_reduce(&value, 1, DType::complex64, ReduceOp::sum), std::logic_error);
  EXPECT_THROW(self->broadcast({}, 1), std::logic_error);
  std::vector<std::byte> all(3);
  EXPECT_THROW(self->all_gather(std::span(all).first(1), all), std::logic_error);
}

}  // namespace collectives_test
}  // namespace lockstep::mpi
