// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstddef>

#include "metrics/numbers/reidentification.hpp"

namespace lockstep::metrics {

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
