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

struct ExpansionOptions {
  std::size_t times = 1;  ///< rounds
  std::size_t neighbors =
      10;            ///< neighbors: whose features are averaged, the row itself among them; 1 <= neighbors <= Q + G
  double alpha = 3;  ///< weights of neighbors are their cosines to this power
};

/// Replaces each row of features by the weighted mean of its nearest ones among queries and gallery.
struct Expanded {
  Matrix queries;
  Matrix gallery;
};
/// @throws std::invalid_argument  different numbers of features, or neighbors out of range
/// Not collective.
/// Source: Radenovic et al., Fine-tuning CNN Image Retrieval with No Human Annotation, section 3.4.
Expanded expand_queries(const Matrix& queries, const Matrix& gallery, const ExpansionOptions& options);

}  // namespace lockstep::metrics
