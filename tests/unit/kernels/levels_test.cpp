// SPDX-License-Identifier: BSD-3-Clause
// Small integers are exact in every order, so that each level has the same bits.
#include "support/levels.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/finite_sums.hpp"
#include "kernels/frequency_products.hpp"
#include "kernels/optimizers.hpp"
#include "kernels/outer_product.hpp"
#include "kernels/pixels.hpp"

namespace lockstep::kernels {
namespace levels_test {

constexpr std::int64_t kCount = 77;  // some vectors of every width, and a tail

/// 0, 1, 2, ... as T.
template <class T>
std::vector<T> counted() {
  std::vector<T> values(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<T>(i);
  return values;
}

template <class T>
void expect_sums() {
  const std::vector<T> values = counted<T>();
  const std::vector<T> ones(kCount, T{1});
  EXPECT_EQ(sum_of_products(values.data(), ones.data(), kCount), 76 * 77 / 2);
  EXPECT_EQ(sum_of_squares(values.data(), kCount), 76 * 77 * 153 / 6);
}

TEST(KernelLevelsTest, Sums) {
  testing::at_each_level([] {
    expect_sums<float>();
    expect_sums<double>();
  });
}

TEST(KernelLevelsTest, FiniteSums) {
  std::vector<float> values = counted<float>();
  values[76] = std::numeric_limits<float>::infinity();
  values[75] = std::nanf("");
  testing::at_each_level([&] {
    const Summation summation = summation_of(DType::float32);
    ASSERT_EQ(summation.element_bytes, sizeof(float));
    const FiniteSums sums = summation.sum(reinterpret_cast<const std::byte*>(values.data()), values.size());
    EXPECT_EQ(sums.count, 75U);
    EXPECT_EQ(sums.min, 0);
    EXPECT_EQ(sums.max, 74);
    EXPECT_EQ(sums.sum, 74 * 75 / 2);
    EXPECT_EQ(sums.square_sum, 74 * 75 * 149 / 6);
    EXPECT_EQ(sums.zeros, 1U);
  });
}

/// The sums number by number: element i belongs to lane i % 8.
FiniteSums plain_sums(const std::vector<double>& values) {
  std::array<FiniteSums, 8> lanes;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) continue;
    FiniteSums& lane = lanes[i % lanes.size()];
    ++lane.count;
    lane.zeros += value == 0;
    lane.min = std::min(lane.min, value);
    lane.max = std::max(lane.max, value);
    lane.sum += value;
    lane.square_sum += value * value;
  }
  FiniteSums all;
  for (const FiniteSums& lane : lanes) {
    all.count += lane.count;
    all.zeros += lane.zeros;
    all.min = std::min(all.min, lane.min);
    all.max = std::max(all.max, lane.max);
    all.sum += lane.sum;
    all.square_sum += lane.square_sum;
  }
  return all;
}

/// Compares the sums of the first 0, 1, 2, ... elements, bit for bit.
template <class Stored, class Widen>
void expect_finite_sums(DType dtype, const std::vector<Stored>& values, const Widen& widen) {
  const Summation summation = summation_of(dtype);
  ASSERT_EQ(summation.element_bytes, sizeof(Stored));
  std::vector<double> widened;
  for (std::size_t count = 0;; ++count) {
    const FiniteSums sums = summation.sum(reinterpret_cast<const std::byte*>(values.data()), count);
    const FiniteSums plain = plain_sums(widened);
    const auto as_tuple = [](const FiniteSums& each) {
      return std::tuple(each.count, each.zeros, each.min, each.max, each.sum, each.square_sum);
    };
    EXPECT_EQ(as_tuple(sums), as_tuple(plain)) << name_of(dtype) << ", " << count << " elements";
    if (count == values.size()) return;
    widened.push_back(widen(values[count]));
  }
}

TEST(KernelLevelsTest, FiniteSumsOfEveryTypeAndLength) {
  std::vector<float> numbers(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) numbers[i] = std::sin(static_cast<float>(i)) * 100;
  numbers[3] = -0.0F;
  numbers[12] = std::nanf("");
  numbers[21] = -std::numeric_limits<float>::infinity();
  std::vector<float> whole = numbers;
  for (float& number : whole) number = std::isfinite(number) ? std::abs(number) : 7;
  const auto as_whole = [&]<class T>(T) { return std::vector<T>(whole.begin(), whole.end()); };
  const auto halves = [&](std::uint16_t (*narrow)(float)) {
    std::vector<std::uint16_t> bits;
    for (const float number : numbers) bits.push_back(narrow(number));
    return bits;
  };
  const auto widen = [](auto value) { return static_cast<double>(value); };
  testing::at_each_level([&] {
    expect_finite_sums(DType::float32, numbers, widen);
    expect_finite_sums(DType::float64, std::vector<double>(numbers.begin(), numbers.end()), widen);
    expect_finite_sums(DType::bfloat16, halves(float_to_bfloat16), bfloat16_to_float);
    expect_finite_sums(DType::float16, halves(float_to_half), half_to_float);
    expect_finite_sums(DType::int8, as_whole(std::int8_t{}), widen);
    expect_finite_sums(DType::int16, as_whole(std::int16_t{}), widen);
    expect_finite_sums(DType::int32, as_whole(std::int32_t{}), widen);
    expect_finite_sums(DType::int64, as_whole(std::int64_t{}), widen);
    expect_finite_sums(DType::uint8, as_whole(std::uint8_t{}), widen);
  });
}

TEST(KernelLevelsTest, RowsOfNumbers) {
  const std::vector<float> values = counted<float>();
  const std::vector<float> fours(kCount, 4.0F);
  testing::at_each_level([&] {
    std::vector<float> out(kCount);
    blend_rows(values.data(), fours.data(), out.size(), 0.25, out.data());
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(out[i], 0.25F * static_cast<float>(i) + 3);

    const std::vector<float> kernel = {1, 2, 3};
    weighted_sums(values.data(), kCount - 4, 2, kernel.data(), 3, out.data());
    for (std::int64_t i = 0; i < kCount - 4; ++i) EXPECT_EQ(out[i], static_cast<float>(6 * i + 2 * 2 + 3 * 4));

    std::vector<float> halves = values;
    for (float& half : halves) half += 0.5F;
    std::vector<std::uint8_t> bytes(kCount);
    round_to_bytes(halves.data(), bytes.size(), bytes.data());
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(bytes[i], (i + 1) / 2 * 2) << i;  // ties to even
  });
}

TEST(KernelLevelsTest, Averages) {
  testing::at_each_level([] {
    std::vector<float> average(kCount, 0.0F);
    std::vector<float> values = counted<float>();
    auto* const target = reinterpret_cast<std::byte*>(average.data());
    auto* const from = reinterpret_cast<std::byte*>(values.data());
    blend(DType::float32, target, from, kCount, 0.5);
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(average[i], 0.5F * static_cast<float>(i));
    exchange(DType::float32, target, from, kCount);
    EXPECT_EQ(average, counted<float>());
    EXPECT_EQ(values[76], 38);
  });
}

TEST(KernelLevelsTest, Pixels) {
  std::vector<std::uint8_t> rgb(3 * kCount);
  for (std::size_t i = 0; i < rgb.size(); ++i) rgb[i] = static_cast<std::uint8_t>(i / 3);  // gray
  testing::at_each_level([&] {
    std::vector<std::uint8_t> gray(kCount);
    luminance(rgb.data(), gray.size(), gray.data());
    EXPECT_EQ(gray, counted<std::uint8_t>());
    EXPECT_EQ(sum_of_luminance(rgb.data(), gray.size(), 3), 76 * 77 / 2);
    std::vector<std::uint8_t> same = rgb;
    saturate(same.data(), gray.size(), 2);
    EXPECT_EQ(same, rgb);
  });
}

TEST(KernelLevelsTest, OuterProducts) {
  const std::vector<float> left = {1, 2, 3, 4, 5, 6};  // [2, 3]
  std::vector<float> right = counted<float>();
  const std::vector<float> more(kCount, 1.0F);
  right.insert(right.end(), more.begin(), more.end());  // [2, kCount]
  const OuterProduct product{.left = left.data(), .right = right.data(), .samples = 2, .rows = 3, .columns = kCount};
  testing::at_each_level([&] {
    std::vector<float> result(3 * kCount, 1e30F);
    const std::vector<float> panels = outer_product_panels(product);
    write_outer_product(product, panels, 0, 1, result.data());
    write_outer_product(product, panels, 1, 3, result.data());
    for (std::int64_t r = 0; r < 3; ++r) {
      for (std::int64_t c = 0; c < kCount; ++c) {
        EXPECT_EQ(result[r * kCount + c], left[r] * static_cast<float>(c) + left[3 + r]) << r << " " << c;
      }
    }
  });
}

/// The part of a product for one frequency, in double precision: sums of small integers are exact.
std::complex<double> plain_frequency_product(const std::vector<std::complex<float>>& left,
                                             const std::vector<std::complex<float>>& right,
                                             const FrequencyProduct& product, std::int64_t row, std::int64_t column,
                                             std::int64_t frequency) {
  std::complex<double> sum = 0;
  for (std::int64_t d = 0; d < product.left.columns; ++d) {
    std::complex<double> a = left[(row * product.left.columns + d) * product.frequencies + frequency];
    std::complex<double> b = right[(d * product.right.columns + column) * product.frequencies + frequency];
    if (product.conjugate == Conjugate::left) a = std::conj(a);
    if (product.conjugate == Conjugate::right) b = std::conj(b);
    sum += a * b;
  }
  return sum;
}

// Rows and columns fill no tile, and there are from one frequency to more than two vectors of them.
TEST(KernelLevelsTest, FrequencyProducts) {
  constexpr std::int64_t kRows = 3, kDepth = 4, kColumns = 5;
  for (const std::int64_t count : {1, 2, 3, 5, 8, 17, 19}) {
    std::vector<std::complex<float>> left(kRows * kDepth * count), right(kDepth * kColumns * count);
    const auto integer = [](std::size_t i) { return static_cast<float>(i * 7919 % 17) - 8.0F; };
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = {integer(i), integer(i + 5)};
    for (std::size_t i = 0; i < right.size(); ++i) right[i] = {integer(3 * i + 1), integer(i + 2)};
    std::vector<std::complex<float>> result(kRows * kColumns * count + 1);
    const auto matrices = [count](std::vector<std::complex<float>>& values, std::int64_t rows, std::int64_t columns) {
      return FrequencyMatrices{reinterpret_cast<float*>(values.data()), rows, columns, 2 * columns * count, 2 * count};
    };
    FrequencyProduct product{.left = matrices(left, kRows, kDepth),
                             .right = matrices(right, kDepth, kColumns),
                             .result = matrices(result, kRows, kColumns),
                             .frequencies = count};
    for (const Conjugate conjugate : {Conjugate::none, Conjugate::left, Conjugate::right}) {
      product.conjugate = conjugate;
      testing::at_each_level([&] {
        std::ranges::fill(result, std::complex<float>(1e30F));
        write_frequency_product(product, 0, 1);
        write_frequency_product(product, 1, kRows);
        for (std::int64_t i = 0; i < kRows * kColumns * count; ++i) {
          const std::complex<double> expected =
              plain_frequency_product(left, right, product, i / count / kColumns, i / count % kColumns, i % count);
          EXPECT_EQ(std::complex<double>(result[i]), expected) << count << " frequencies, place " << i;
        }
        EXPECT_EQ(result.back(), std::complex<float>(1e30F)) << "written past the end";
      });
    }
  }
}

}  // namespace levels_test
}  // namespace lockstep::kernels
