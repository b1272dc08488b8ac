// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/reranking.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <stdexcept>

namespace lockstep::metrics {

namespace {

using Indices = std::vector<std::size_t>;

/// [Q + G, Q + G] squares of all distances; each row divided by its largest.
Matrix all_distances(const Matrix& query_gallery, const Matrix& query_query, const Matrix& gallery_gallery) {
  const std::size_t queries = query_query.columns;
  const std::size_t all = queries + gallery_gallery.columns;
  Matrix result{.values = std::vector<double>(all * all), .columns = all};
  for (std::size_t i = 0; i < all; ++i) {
    double largest = 0;
    for (std::size_t j = 0; j < all; ++j) {
      const bool is_query = i < queries;
      const bool to_query = j < queries;
      const double distance = is_query && to_query ? query_query.row(j)[i]
                              : is_query           ? query_gallery.row(i)[j - queries]
                              : to_query           ? query_gallery.row(j)[i - queries]
                                                   : gallery_gallery.row(j - queries)[i - queries];
      result.row(i)[j] = distance * distance;
      largest = std::max(largest, result.row(i)[j]);
    }
    for (double& distance : result.row(i)) distance = largest > 0 ? distance / largest : 0;
  }
  return result;
}

std::vector<Indices> rankings(const Matrix& distances) {
  std::vector<Indices> ranked(distances.rows(), Indices(distances.columns));
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    std::iota(ranked[i].begin(), ranked[i].end(), std::size_t{0});
    const auto row = distances.row(i);
    std::stable_sort(ranked[i].begin(), ranked[i].end(),
                     [row](std::size_t a, std::size_t b) { return row[a] < row[b]; });
  }
  return ranked;
}

/// The first `count` of row i that have i among their own first `count`; sorted.
Indices reciprocal(const std::vector<Indices>& ranked, std::size_t i, std::size_t count) {
  const auto nearest = [&](std::size_t entry) {
    return std::span(ranked[entry]).first(std::min(count, ranked[entry].size()));
  };
  Indices result;
  for (const std::size_t j : nearest(i)) {
    const auto back = nearest(j);
    if (std::find(back.begin(), back.end(), i) != back.end()) result.push_back(j);
  }
  std::sort(result.begin(), result.end());
  return result;
}

/// Those, and the reciprocal neighbors of each of them that mostly are among them.
Indices expanded_reciprocal(const std::vector<Indices>& ranked, std::size_t i, std::size_t k1) {
  const Indices own = reciprocal(ranked, i, k1 + 1);
  const auto half = static_cast<std::size_t>(std::nearbyint(static_cast<double>(k1) / 2));
  Indices expanded = own;
  for (const std::size_t candidate : own) {
    const Indices theirs = reciprocal(ranked, candidate, half + 1);
    Indices shared;
    std::set_intersection(own.begin(), own.end(), theirs.begin(), theirs.end(), std::back_inserter(shared));
    if (3 * shared.size() > 2 * theirs.size()) expanded.insert(expanded.end(), theirs.begin(), theirs.end());
  }
  std::sort(expanded.begin(), expanded.end());
  expanded.erase(std::unique(expanded.begin(), expanded.end()), expanded.end());
  return expanded;
}

/// Each row as weights of its reciprocal neighbors, which sum to 1.
Matrix encodings(const Matrix& distances, const std::vector<Indices>& ranked, std::size_t k1) {
  Matrix weights{.values = std::vector<double>(distances.values.size()), .columns = distances.columns};
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const Indices neighbors = expanded_reciprocal(ranked, i, k1);
    double sum = 0;
    for (const std::size_t j : neighbors) sum += weights.row(i)[j] = std::exp(-distances.row(i)[j]);
    for (const std::size_t j : neighbors) weights.row(i)[j] /= sum;
  }
  return weights;
}

Matrix averaged_over_nearest(const Matrix& weights, const std::vector<Indices>& ranked, std::size_t k2) {
  Matrix means{.values = std::vector<double>(weights.values.size()), .columns = weights.columns};
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    const auto nearest = std::span(ranked[i]).first(std::min(k2, ranked[i].size()));
    const auto mean = means.row(i);
    for (const std::size_t j : nearest) {
      for (std::size_t c = 0; c < mean.size(); ++c) mean[c] += weights.row(j)[c] / static_cast<double>(nearest.size());
    }
  }
  return means;
}

double jaccard_distance(std::span<const double> a, std::span<const double> b) {
  double shared = 0;
  for (std::size_t i = 0; i < a.size(); ++i) shared += std::min(a[i], b[i]);
  return 1 - shared / (2 - shared);  // the weights of both sum to 1
}

void require_square(const Matrix& matrix, std::size_t size) {
  if (matrix.columns == size && matrix.values.size() == size * size) return;
  throw std::invalid_argument("the three matrices of distances have inconsistent shapes");
}

}  // namespace

Matrix rerank(const Matrix& query_gallery, const Matrix& query_query, const Matrix& gallery_gallery,
              const RerankOptions& options) {
  require_square(query_query, query_gallery.rows());
  require_square(gallery_gallery, query_gallery.columns);
  if (options.k1 < 1 || options.k2 < 1) throw std::invalid_argument("k1 and k2 must be at least 1");
  const std::size_t queries = query_gallery.rows();
  const Matrix distances = all_distances(query_gallery, query_query, gallery_gallery);
  const std::vector<Indices> ranked = rankings(distances);
  const Matrix encoded = averaged_over_nearest(encodings(distances, ranked, options.k1), ranked, options.k2);
  Matrix result{.values = {}, .columns = query_gallery.columns};
  for (std::size_t q = 0; q < queries; ++q) {
    for (std::size_t g = 0; g < query_gallery.columns; ++g) {
      result.values.push_back((1 - options.original) * jaccard_distance(encoded.row(q), encoded.row(queries + g)) +
                              options.original * distances.row(q)[queries + g]);
    }
  }
  return result;
}

}  // namespace lockstep::metrics
