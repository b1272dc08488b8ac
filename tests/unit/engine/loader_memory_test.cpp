// SPDX-License-Identifier: BSD-3-Clause
#include "engine/settings/loader_memory.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>

#include "support/sentence.hpp"

namespace lockstep::engine {
namespace loader_memory_test {

// 100 samples of 3 x 10 x 20 float32 numbers and a class.
const std::vector<data::Field> kFields = {{.name = "data", .shape = {3, 10, 20}},
                                          {.name = "label", .shape = {}, .dtype = at::kLong}};
constexpr LoaderMemory kWanted = {.batch_bytes = 1'000'000, .prefetch = 8, .in_use = 2};

TEST(LoaderMemoryTest, CountsTheBytesOfAllFields) {
  EXPECT_EQ(batch_bytes(kFields, 100), 100 * (3 * 10 * 20 * 4 + 8));
  std::vector<data::Field> bytes = kFields;
  bytes[0].dtype = at::kByte;
  EXPECT_EQ(batch_bytes(bytes, 100), 100 * (3 * 10 * 20 + 8));
  EXPECT_EQ(kWanted.bytes(), 10'000'000);
  EXPECT_FALSE(kWanted.is_large(6));
  EXPECT_TRUE(kWanted.is_large(7));
}

TEST(LoaderMemoryTest, LimitsThePreparedBatchesOfAllRanksToTheMemory) {
  EXPECT_EQ(fitted(kWanted, 4, std::nullopt, 3).prefetch, 8);
  EXPECT_EQ(fitted(kWanted, 4, 30'000'000, 3).prefetch, 8);
  EXPECT_EQ(fitted(kWanted, 4, 29'999'999, 3).prefetch, 7);
  EXPECT_EQ(fitted(kWanted, 4, 18'000'000, 3).prefetch, 4);
  EXPECT_EQ(fitted({.batch_bytes = 0, .prefetch = 8}, 4, 0, 3).prefetch, 8) << "the size is not known";
}

TEST(LoaderMemoryTest, RefusesBatchesThatDoNotFit) {
  EXPECT_EQ(testing::sentence_of<ConfigError>([] { fitted(kWanted, 4, 17'999'999, 3); }),
            "18.0 MB are available on this host, but the loader of a rank holds up to 6 batches of 1.0 MB "
            "(data.prefetch = 4): 6.0 MB, 3 ranks of a host 18.0 MB; reduce train.global_batch_size or "
            "train.micro_batch, or use more hosts");
}

TEST(LoaderMemoryTest, RefusesEvaluationsThatDoNotFit) {
  require_evaluation_memory(1'000'000, 3, std::nullopt, 2);
  require_evaluation_memory(1'000'000, 3, 6'000'000, 2);
  EXPECT_EQ(testing::sentence_of<ConfigError>([] { require_evaluation_memory(1'000'000, 3, 5'999'999, 2); }),
            "6.0 MB are available on this host for 2 ranks, but each holds 3 batches of 1.0 MB while it evaluates; "
            "reduce eval.batch_size");
}

TEST(LoaderMemoryTest, Text) {
  EXPECT_EQ(loader_memory_text(kWanted, 1),
            "the loader of a rank holds up to 10 batches of 1.0 MB (data.prefetch = 8): 10.0 MB");
}

}  // namespace loader_memory_test
}  // namespace lockstep::engine
