// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/measurements.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <vector>

namespace lockstep {
namespace measurements_test {

using Counts = std::vector<std::int64_t>;

TEST(HistogramTest, CountsEveryValue) {
  const std::vector<float> same(7, 3.0F);
  const Histogram one = histogram_of(same, 5);
  EXPECT_EQ(one.counts, (Counts{7, 0, 0, 0, 0}));
  EXPECT_EQ(one.sum, 21);
  const std::vector<float> values = {-1, -0.5F, 0, 0.5F, 1, 1};
  const Histogram two = histogram_of(values, 2);
  EXPECT_EQ(two.counts, (Counts{2, 4}));  // a bucket begins with its left end
  EXPECT_EQ(two.ends, (std::vector<double>{0, 1}));
  EXPECT_EQ(two.sum_squares, 3.5);
}

TEST(HistogramTest, HasTheMomentsOfItsValues) {
  const std::vector<float> values = {0, 1, 2, 2.5F, 4};
  const Histogram counted = histogram_of(values, 4);
  EXPECT_EQ(counted.ends, (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(counted.counts, (Counts{1, 1, 2, 1}));
  EXPECT_EQ(counted.count, 5);
  EXPECT_EQ(counted.sum, 9.5);
  EXPECT_EQ(counted.sum_squares, 27.25);
  EXPECT_EQ(counted.min, 0);
  EXPECT_EQ(counted.max, 4);
}

TEST(HistogramTest, TheLargestNumbersDoNotOverflow) {
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(histogram_of(std::vector<float>{-largest, largest}, 2).counts, (Counts{1, 1}));
}

TEST(HistogramTest, RefusesNoValuesNoBinsAndWhatIsNotFinite) {
  const std::vector<float> values = {1, 2};
  EXPECT_THROW(static_cast<void>(histogram_of({}, 2)), std::invalid_argument);
  EXPECT_THROW(static_cast<void>(histogram_of(values, 0)), std::invalid_argument);
  for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::vector<float> broken = {1, odd, 2};
    EXPECT_THROW(static_cast<void>(histogram_of(broken, 2)), std::invalid_argument);
  }
}

TEST(TableTest, HasAsManyRowsAsItsValuesFill) {
  EXPECT_EQ((Table{.name = "a", .columns = 2, .values = {1, 2, 3, 4, 5, 6}}.rows()), 3U);
  EXPECT_EQ(Table{}.rows(), 0U);
}

TEST(RecordTest, GivesNumbersByName) {
  const Record record{.kind = "train", .values = {{"step", std::int64_t{3}}, {"loss", 0.5}, {"note", "words"}}};
  EXPECT_EQ(record.number("step"), 3);
  EXPECT_EQ(record.number("loss"), 0.5);
  EXPECT_FALSE(record.number("note").has_value());
  EXPECT_FALSE(record.number("none").has_value());
}

}  // namespace measurements_test
}  // namespace lockstep
