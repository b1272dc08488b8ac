// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/reidentification.hpp"

#include <algorithm>
#include <cmath>
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

}  // namespace lockstep::metrics
