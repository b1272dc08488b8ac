// SPDX-License-Identifier: BSD-3-Clause
#include "embed/c_arrays.hpp"

#include <lockstep/core/error.hpp>

#include <gtest/gtest.h>
#include <torch/types.h>

#include <array>
#include <cstring>
#include <numeric>

#include "embed/samples.hpp"
#include "support/sentence.hpp"

namespace lockstep::embed {
namespace c_arrays_test {

template <class T>
lockstep_array array_over(int type, const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides,
                          T* data) {
  lockstep_array array = {};
  array.name = "u";
  array.type = type;
  array.rank = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), array.sizes);
  std::copy(strides.begin(), strides.end(), array.strides);
  array.data = data;
  return array;
}

/// Results of a run are written to an array of the program in this way.
void write_to(const lockstep_array& array, const at::Tensor& values) {
  const at::Tensor target = tensor_of(array);
  write(array.name, target, values);
  write_back(array, target);
}

std::vector<float> counted(std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), 0.0F);
  return values;
}

TEST(CArraysTest, ArraysOfAnyPositiveStridesAreNotCopied) {
  std::vector<float> values = counted(24);
  // u(nx = 2, ny = 3, channels = 4) of Fortran, with one sample per channel.
  const at::Tensor columns = tensor_of(array_over(LOCKSTEP_FLOAT32, {4, 3, 2}, {24, 8, 4}, values.data()));
  EXPECT_EQ(columns.const_data_ptr(), values.data());
  EXPECT_TRUE(columns.is_contiguous());
  EXPECT_EQ(columns[1][2][1].item<float>(), 11);
  // A component of a derived type with three real32.
  const at::Tensor component = tensor_of(array_over(LOCKSTEP_FLOAT32, {8}, {12}, values.data() + 1));
  EXPECT_EQ(component.const_data_ptr(), values.data() + 1);
  EXPECT_EQ(component[7].item<float>(), 22);
  // A transposed array.
  const at::Tensor transposed = tensor_of(array_over(LOCKSTEP_FLOAT32, {6, 4}, {4, 24}, values.data()));
  EXPECT_EQ(transposed[5][3].item<float>(), 23);
}

TEST(CArraysTest, OtherStridesAreCopiedInOrder) {
  std::vector<float> values = counted(12);
  const at::Tensor reversed = tensor_of(array_over(LOCKSTEP_FLOAT32, {3, 4}, {16, -4}, values.data() + 3));
  EXPECT_TRUE(at::equal(reversed, at::arange(12, at::kFloat).view({3, 4}).flip(1)));
  // Components of a packed type of 5 bytes.
  std::array<std::byte, 20> packed{};
  for (int i = 0; i < 4; ++i) {
    const float value = static_cast<float>(i) + 0.5F;
    std::memcpy(packed.data() + 5 * i + 1, &value, 4);
  }
  const at::Tensor unaligned = tensor_of(array_over(LOCKSTEP_FLOAT32, {4}, {5}, packed.data() + 1));
  EXPECT_TRUE(at::equal(unaligned, at::arange(4, at::kFloat) + 0.5));
}

TEST(CArraysTest, EveryTypeIsReadAndWritten) {
  const std::array types = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte};
  for (std::size_t i = 0; i < types.size(); ++i) {
    const at::Tensor values = at::arange(6, at::TensorOptions(types[i])).view({2, 3});
    const auto bytes = static_cast<std::int64_t>(values.element_size());
    const lockstep_array array = array_over(static_cast<int>(i) + 1, {2, 3}, {3 * bytes, bytes},
                                            static_cast<std::byte*>(values.mutable_data_ptr()));
    EXPECT_TRUE(at::equal(tensor_of(array), values));
    write_to(array, at::tensor({5.0, 4.0, 3.0, 2.0, 1.0, 0.0}).view({2, 3}));
    EXPECT_EQ(values[0][0].item<double>(), 5) << c10::toString(types[i]);
  }
}

TEST(CArraysTest, ResultsAreWrittenWithAnyStrides) {
  const at::Tensor result = at::arange(6, at::kFloat).view({2, 3});
  std::vector<double> target(12, -1);
  write_to(array_over(LOCKSTEP_FLOAT64, {2, 3}, {8, 32}, target.data()), result);
  EXPECT_EQ(target, (std::vector<double>{0, 3, -1, -1, 1, 4, -1, -1, 2, 5, -1, -1}));
  std::vector<double> backwards(6, -1);
  write_to(array_over(LOCKSTEP_FLOAT64, {2, 3}, {-24, -8}, backwards.data() + 5), result);
  EXPECT_EQ(backwards, (std::vector<double>{5, 4, 3, 2, 1, 0}));
}

TEST(CArraysTest, ArraysWithoutElementsNeedNoMemory) {
  float* const nothing = nullptr;
  EXPECT_EQ(tensor_of(array_over(LOCKSTEP_FLOAT32, {0, 3}, {12, 4}, nothing)).sizes(), at::IntArrayRef({0, 3}));
}

TEST(CArraysTest, WrongArraysAreRefused) {
  std::vector<float> values = counted(6);
  const auto sentence = [&](lockstep_array array) {
    return testing::sentence_of<DataError>([&] { tensor_of(array); });
  };
  const lockstep_array good = array_over(LOCKSTEP_FLOAT32, {2, 3}, {12, 4}, values.data());
  lockstep_array wrong = good;
  wrong.type = 8;
  EXPECT_EQ(sentence(wrong), "'u' has the type 8, which is none; use LOCKSTEP_FLOAT32, for example");
  wrong = good;
  wrong.rank = 0;
  EXPECT_EQ(sentence(wrong), "'u' has 0 dimensions; 1 to 15 are possible");
  wrong = good;
  wrong.sizes[1] = -3;
  EXPECT_EQ(sentence(wrong), "'u' has the sizes [2, -3], one of which is negative");
  wrong = good;
  wrong.data = nullptr;
  EXPECT_EQ(sentence(wrong), "'u' has elements, but its data are NULL");
  EXPECT_EQ(testing::sentence_of<DataError>([&] {
              write_to(good, at::zeros({3, 2}));
            }),
            "'u' has the sizes [2, 3], but the values [3, 2]");
  wrong = good;
  wrong.device = LOCKSTEP_GPU;
  EXPECT_EQ(
      sentence(wrong),
      "'u' is in the memory of a GPU (LOCKSTEP_GPU), but the run computes on the CPU; set run.device=cuda, or use an "
      "array in host memory");
  wrong.sizes[0] = 0;
  EXPECT_THROW(tensor_of(wrong), DataError);
  wrong.device = 2;
  EXPECT_EQ(sentence(wrong), "'u' has the device 2, which is none; use LOCKSTEP_HOST or LOCKSTEP_GPU");
  wrong = good;
  wrong.name = nullptr;
  EXPECT_EQ(testing::sentence_of<DataError>([&] { tensors_of(std::span(&wrong, 1)); }), "array number 0 has no name");
}

}  // namespace c_arrays_test
}  // namespace lockstep::embed
