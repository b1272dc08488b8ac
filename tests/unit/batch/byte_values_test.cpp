// SPDX-License-Identifier: BSD-3-Clause
#include "batch/byte_values.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

namespace lockstep::batch {
namespace byte_values_test {

/// Number v of channel c is 1000 c + v.
at::Tensor table_of(std::int64_t channels) {
  return torch::arange(256, at::kFloat) + 1000 * torch::arange(channels, at::kFloat).unsqueeze(1);
}

at::Tensor some_bytes(std::int64_t channels) {
  return (torch::arange(2 * channels * 5 * 7) * 37 % 256).to(at::kByte).view({2, channels, 5, 7});
}

TEST(ByteValuesTest, EachByteBecomesTheNumberOfItsChannel) {
  for (const std::int64_t channels : {1, 3}) {
    const at::Tensor bytes = some_bytes(channels);
    const at::Tensor expected =
        bytes.to(at::kFloat) + 1000 * torch::arange(channels, at::kFloat).view({channels, 1, 1});
    for (const auto of_bytes : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        const at::Tensor values = values_of_bytes(bytes.clone(of_bytes), table_of(channels), format);
        EXPECT_TRUE(values.equal(expected)) << channels;
        EXPECT_EQ(values.strides(), expected.clone(format).strides()) << channels;
      }
    }
  }
}

TEST(ByteValuesTest, PartsOfABatchAndEmptyOnes) {
  const at::Tensor bytes = some_bytes(3).clone(at::MemoryFormat::ChannelsLast);
  const at::Tensor all = values_of_bytes(bytes, table_of(3), at::MemoryFormat::ChannelsLast);
  const at::Tensor last = values_of_bytes(bytes.narrow(0, 1, 1), table_of(3), at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(last.equal(all.narrow(0, 1, 1)));
  EXPECT_EQ(values_of_bytes(bytes.narrow(0, 0, 0), table_of(3), at::MemoryFormat::Contiguous).sizes(),
            (at::IntArrayRef{0, 3, 5, 7}));
}

TEST(ByteValuesTest, OnlyValuesWithATableChange) {
  Batch batch(some_bytes(3), torch::tensor({1, 2}));
  batch.set("mask", some_bytes(1));
  batch.set_byte_tables(std::make_shared<const ByteTables>(ByteTables{{"data", table_of(3)}}));
  const Batch changed = with_values(batch.share(), at::MemoryFormat::Contiguous);
  EXPECT_EQ(changed.input().scalar_type(), at::kFloat);
  EXPECT_EQ(changed.tensor("mask").scalar_type(), at::kByte);
  EXPECT_EQ(changed.target().scalar_type(), at::kLong);
  EXPECT_EQ(changed.byte_tables(), nullptr) << "a second call would read float32 numbers as bytes";
  EXPECT_EQ(batch.input().scalar_type(), at::kByte);
}

}  // namespace byte_values_test
}  // namespace lockstep::batch
