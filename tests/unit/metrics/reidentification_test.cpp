// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/reidentification.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::metrics {
namespace reidentification_test {

using Doubles = std::vector<double>;

// Person 1 at camera 0 asks; by distance: itself there (left out), 2, 1, 3, 1. Person 9 is nowhere else.
const std::vector<Sighting> kQueries = {{1, 0}, {9, 0}};
const std::vector<Sighting> kGallery = {{1, 0}, {2, 0}, {1, 1}, {3, 1}, {1, 2}, {9, 0}};
const Matrix kDistances = {.values = {0, 1, 2, 3, 4, 9, 5, 1, 2, 3, 4, 0}, .columns = 6};

TEST(ReidentificationTest, LeavesOutTheSameCameraAndQueriesWithoutAMatch) {
  const Reidentification found = reidentification(kDistances, kQueries, kGallery, 3);
  EXPECT_EQ(found.cmc, (Doubles{0, 1, 1}));
  EXPECT_EQ(found.average_precisions, (Doubles{(1.0 / 2 + 2.0 / 4) / 2}));
  EXPECT_EQ(found.inverse_negative_penalties, (Doubles{2.0 / 4}));
  EXPECT_EQ(found.map, 0.5);
}

TEST(ReidentificationTest, AQueryWithFewEntriesKeepsItsLastValue) {
  const Reidentification found = reidentification(kDistances, kQueries, kGallery, 20);
  EXPECT_EQ(found.cmc.size(), 20U);
  EXPECT_EQ(found.cmc.back(), 1);
}

TEST(ReidentificationTest, OfEqualDistancesTheEarlierEntryIsFirst) {
  const std::vector<Sighting> query = {{1, 0}};
  const std::vector<Sighting> gallery = {{2, 1}, {1, 1}};
  EXPECT_EQ(reidentification({{5, 5}, 2}, query, gallery, 1).cmc.front(), 0);
  EXPECT_EQ(reidentification({{std::nan(""), 5}, 2}, query, gallery, 1).cmc.front(), 1);
}

TEST(ReidentificationTest, OfNothingIsNotANumber) {
  const std::vector<Sighting> nobody;
  EXPECT_TRUE(std::isnan(reidentification({}, nobody, nobody, 2).map));
  EXPECT_TRUE(std::isnan(reidentification({}, nobody, nobody, 2).cmc.front()));
}

TEST(ReidentificationTest, DistancesOfRightAngles) {
  const Matrix a = {.values = {3, 0}, .columns = 2};
  const Matrix b = {.values = {0, 4, 6, 0, -1, 0, 0, 0}, .columns = 2};
  EXPECT_EQ(squared_distances(a, b).values, (Doubles{25, 9, 16, 9}));
  EXPECT_EQ(cosine_distances(a, b).values, (Doubles{1, 0, 2, 1}));
}

TEST(ReidentificationTest, RefusesSizesThatDoNotFit) {
  EXPECT_THROW(squared_distances({{1, 2}, 2}, {{1}, 1}), std::invalid_argument);
  EXPECT_THROW(reidentification(kDistances, kQueries, kQueries, 1), std::invalid_argument);
  EXPECT_THROW(reidentification(kDistances, kQueries, kGallery, 0), std::invalid_argument);
  EXPECT_THROW(rerank(kDistances, kDistances, kDistances, {}), std::invalid_argument);
  EXPECT_THROW(rerank({{1}, 1}, {{0}, 1}, {{0}, 1}, {.k1 = 0}), std::invalid_argument);
}

// Two tight pairs far from each other: each query shares all neighbors with its own pair and none with the other.
TEST(RerankingTest, SharedNeighborsBringNear) {
  const Matrix queries = {.values = {0, 10}, .columns = 1};
  const Matrix gallery = {.values = {1, 11}, .columns = 1};
  const Matrix distances = rerank(squared_distances(queries, gallery), squared_distances(queries, queries),
                                  squared_distances(gallery, gallery), {.k1 = 1, .k2 = 1, .original = 0});
  EXPECT_NEAR(distances.row(0)[0], 0, 1e-4);
  EXPECT_NEAR(distances.row(0)[1], 1, 1e-12);
  EXPECT_NEAR(distances.row(1)[0], 1, 1e-12);
  EXPECT_NEAR(distances.row(1)[1], 0, 1e-4);
}

}  // namespace reidentification_test
}  // namespace lockstep::metrics
