// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/reidentification.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <stdexcept>

#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

constexpr double kMinProduct = 1e-12;

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void require_fit(const Matrix& distances, std::span<const Sighting> queries, std::span<const Sighting> gallery) {
  if (distances.columns == gallery.size() && distances.values.size() == queries.size() * gallery.size()) return;
  throw std::invalid_argument("distances must have a row for each query and a column for each gallery entry");
}

Matrix distances_by(const Matrix& queries, const Matrix& gallery, auto distance) {
  if (queries.columns != gallery.columns) throw std::invalid_argument("queries and gallery differ in their features");
  Matrix distances{.values = {}, .columns = gallery.rows()};
  for (std::size_t q = 0; q < queries.rows(); ++q) {
    for (std::size_t g = 0; g < gallery.rows(); ++g) {
      distances.values.push_back(distance(queries.row(q), gallery.row(g)));
    }
  }
  return distances;
}

/// Entries that count for a query, nearest first.
struct Ranking {
  std::vector<std::size_t> entries;
  std::vector<bool> matches;
  std::size_t match_count = 0;
};

Ranking ranking_of(std::span<const double> distances, const Sighting& query, std::span<const Sighting> gallery) {
  Ranking ranking;
  for (std::size_t g = 0; g < gallery.size(); ++g) {
    if (gallery[g].identity != query.identity || gallery[g].camera != query.camera) ranking.entries.push_back(g);
  }
  const auto is_nearer = [distances](std::size_t a, std::size_t b) {
    return distances[a] < distances[b] || (std::isnan(distances[b]) && !std::isnan(distances[a]));
  };
  std::stable_sort(ranking.entries.begin(), ranking.entries.end(), is_nearer);
  for (const std::size_t g : ranking.entries) {
    ranking.matches.push_back(gallery[g].identity == query.identity);
    ranking.match_count += ranking.matches.back() ? 1 : 0;
  }
  return ranking;
}

/// Counts one query that has matches.
void add_query(const Ranking& ranking, Reidentification& result) {
  double found = 0;
  double precisions = 0;
  double last_place = 0;
  for (std::size_t i = 0; i < ranking.matches.size(); ++i) {
    if (!ranking.matches[i]) continue;
    const auto place = static_cast<double>(i + 1);
    precisions += ++found / place;
    last_place = place;
    if (found == 1) {
      for (std::size_t r = i; r < result.cmc.size(); ++r) ++result.cmc[r];
    }
  }
  result.average_precisions.push_back(precisions / found);
  result.inverse_negative_penalties.push_back(found / last_place);
}

double mean(const std::vector<double>& values) {
  return values.empty() ? kNan
                        : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

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

Matrix squared_distances(const Matrix& queries, const Matrix& gallery) {
  return distances_by(queries, gallery, [](std::span<const double> a, std::span<const double> b) {
    double square = 0;
    for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
    return square;
  });
}

Matrix cosine_distances(const Matrix& queries, const Matrix& gallery) {
  return distances_by(queries, gallery, [](std::span<const double> a, std::span<const double> b) {
    return 1 - dot(a, b) / std::max(std::sqrt(dot(a, a)) * std::sqrt(dot(b, b)), kMinProduct);
  });
}

Reidentification reidentification(const Matrix& distances, std::span<const Sighting> queries,
                                  std::span<const Sighting> gallery, std::size_t max_rank) {
  require_fit(distances, queries, gallery);
  if (max_rank < 1) throw std::invalid_argument("max_rank must be at least 1");
  Reidentification result;
  result.cmc.resize(max_rank);
  for (std::size_t q = 0; q < queries.size() && !gallery.empty(); ++q) {
    const Ranking ranking = ranking_of(distances.row(q), queries[q], gallery);
    if (ranking.match_count > 0) add_query(ranking, result);
  }
  for (double& share : result.cmc) share /= static_cast<double>(result.average_precisions.size());
  result.map = mean(result.average_precisions);
  result.minp = mean(result.inverse_negative_penalties);
  return result;
}

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
