// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Finding again in a gallery who is seen in a query: Q queries, G gallery entries, D features.
namespace lockstep::metrics {

/// Rows of numbers, [rows, columns].
struct Matrix {
  std::vector<double> values;
  std::size_t columns = 0;

  std::size_t rows() const noexcept { return columns == 0 ? 0 : values.size() / columns; }
  std::span<const double> row(std::size_t i) const { return std::span(values).subspan(i * columns, columns); }
  std::span<double> row(std::size_t i) { return std::span(values).subspan(i * columns, columns); }
};

/// Whom an image shows, and which camera took it.
struct Sighting {
  std::int64_t identity = 0;
  std::int64_t camera = 0;
};

/// [Q, G] squares of Euclidean distances of rows of features.
/// @throws std::invalid_argument  different numbers of features
Matrix squared_distances(const Matrix& queries, const Matrix& gallery);
/// [Q, G] 1 - cosine of the angle between rows of features, in [0, 2].
/// @throws std::invalid_argument  different numbers of features
Matrix cosine_distances(const Matrix& queries, const Matrix& gallery);

/// The ranks at which queries find their identity by increasing distance. For each query, gallery entries with the same
/// identity and camera are excluded; queries without other entries of their identity are not counted.
struct Reidentification {
  std::vector<double> cmc;  ///< [max_rank] share of counted queries with a match among the first r + 1 entries
  std::vector<double> average_precisions;          ///< [counted queries] means over matches of the precision there
  std::vector<double> inverse_negative_penalties;  ///< [counted queries] matches / place of the last one, from 1
  double map = 0;                                  ///< means of those; NaN where no query counts, as in cmc
  double minp = 0;
};

/// @param distances  [Q, G]; of equal ones the earlier entry comes first. NaN comes last
/// @param max_rank   >= 1; a query with fewer entries keeps its last value beyond them
/// @throws std::invalid_argument  sizes that do not fit, or max_rank below 1
/// Source: Zheng et al., Scalable Person Re-identification (Market-1501); INP: Ye et al., Deep Learning for Person
/// Re-identification, section 4.
Reidentification reidentification(const Matrix& distances, std::span<const Sighting> queries,
                                  std::span<const Sighting> gallery, std::size_t max_rank);

struct RerankOptions {
  std::size_t k1 = 20;    ///< neighbors that may be reciprocal; >= 1
  std::size_t k2 = 6;     ///< neighbors whose encodings are averaged; >= 1
  double original = 0.3;  ///< weight of the original distance (lambda), in [0, 1]
};

/// Distances of queries and gallery, in which sharing reciprocal neighbors brings near.
/// @param query_gallery  [Q, G]
/// @param query_query    [Q, Q]
/// @param gallery_gallery  [G, G]
/// @return               [Q, G] (1 - lambda) * Jaccard distance + lambda * squared distance relative to the largest
/// @throws std::invalid_argument  sizes that do not fit, or a k of 0
/// Takes memory for 3 (Q + G)^2 numbers. Not collective.
/// Source: Zhong et al., Re-ranking Person Re-identification with k-reciprocal Encoding.
Matrix rerank(const Matrix& query_gallery, const Matrix& query_query, const Matrix& gallery_gallery,
              const RerankOptions& options);

}  // namespace lockstep::metrics
