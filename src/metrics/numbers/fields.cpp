// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/numbers/fields.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numbers>
#include <numeric>

#include "metrics/numbers/fourier.hpp"
#include "metrics/numbers/ratio.hpp"

namespace lockstep::metrics {

namespace {

constexpr double kWellEpsilon = 1e-7;
constexpr std::array<std::size_t, kBands + 1> kPdeBands = {0, 4, 12, static_cast<std::size_t>(-1)};  // first bins

/// The larger number; NaN if one is.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Calls `visit` for each point that counts.
template <class Visit>
void for_each_point(const ChannelPair& pair, const Visit& visit) {
  for (std::size_t i = 0; i < pair.points(); ++i) {
    if (const double weight = pair.weight(i); weight != 0) visit(i, weight);
  }
}

using Position = std::array<std::size_t, 3>;

/// The position of a point along each axis.
Position position_of(std::size_t point, std::span<const std::size_t> space) {
  Position position = {};
  for (std::size_t axis = space.size(); axis-- > 0;) {
    position[axis] = point % space[axis];
    point /= space[axis];
  }
  return position;
}

/// The points at both ends of each axis; a corner counts once for each axis.
double boundary_error(std::span<const double> errors, std::span<const std::size_t> space) {
  double sum = 0;
  double count = 0;
  for (std::size_t point = 0; point < errors.size(); ++point) {
    const Position position = position_of(point, space);
    for (std::size_t axis = 0; axis < space.size(); ++axis) {
      const int ends = (position[axis] == 0 ? 1 : 0) + (position[axis] + 1 == space[axis] ? 1 : 0);
      sum += ends * errors[point] * errors[point];
      count += ends;
    }
  }
  return std::sqrt(sum / count);
}

/// The bin of an element of the transform; pde_bins(space) or more = none.
std::size_t pde_bin(const Position& position, std::span<const std::size_t> space) {
  constexpr auto kNone = static_cast<std::size_t>(-1);
  if (space.size() == 1) return position[0];
  double squares = 0;
  for (std::size_t axis = 0; axis < space.size(); ++axis) {
    if (position[axis] >= space[axis] / 2) return kNone;
    squares += static_cast<double>(position[axis] * position[axis]);
  }
  return static_cast<std::size_t>(std::sqrt(squares));
}

/// The length of the wave vector of an element of the transform, in float32.
float wave_length(const Position& position, std::span<const std::size_t> space) {
  constexpr auto kTurn = static_cast<float>(2 * std::numbers::pi);
  float squares = 0;
  for (std::size_t axis = 0; axis < space.size(); ++axis) {
    const auto per_wave = static_cast<float>(1.0 / static_cast<double>(space[axis]));
    const float wave = kTurn * (static_cast<float>(wave_number(position[axis], space[axis])) * per_wave);
    squares += wave * wave;
  }
  return std::sqrt(squares);
}

}  // namespace

bool ChannelPair::has_gaps() const {
  return std::ranges::any_of(weights, [](double weight) { return weight == 0; });
}

std::vector<double> errors_of(const ChannelPair& pair) {
  std::vector<double> errors(pair.points());
  std::transform(pair.prediction.begin(), pair.prediction.end(), pair.target.begin(), errors.begin(), std::minus<>());
  return errors;
}

FieldSums field_sums(const ChannelPair& pair) {
  FieldSums sums;
  for_each_point(pair, [&](std::size_t i, double weight) {
    const double error = pair.prediction[i] - pair.target[i];
    sums.weight += weight;
    sums.squared += weight * error * error;
    sums.absolute += weight * std::abs(error);
    sums.error += weight * error;
    sums.max = larger(std::abs(error), sums.max);
  });
  return sums;
}

double WellErrors::rmse() const { return std::sqrt(mse); }
double WellErrors::nrmse() const { return std::sqrt(nmse); }
double WellErrors::vrmse() const { return std::sqrt(vmse); }

WellErrors well_errors(const ChannelPair& pair) {
  const FieldSums sums = field_sums(pair);
  double prediction = 0;
  double target = 0;
  double target2 = 0;
  double target_size = 0;
  for_each_point(pair, [&](std::size_t i, double) {
    prediction += pair.prediction[i];
    target += pair.target[i];
    target2 += pair.target[i] * pair.target[i];
    target_size += std::abs(pair.target[i]);
  });
  const double n = sums.weight;
  double prediction_squares = 0;  // sums of squared differences to the means
  double target_squares = 0;
  double products = 0;
  for_each_point(pair, [&](std::size_t i, double) {
    const double p = pair.prediction[i] - prediction / n;
    const double t = pair.target[i] - target / n;
    prediction_squares += p * p;
    target_squares += t * t;
    products += p * t;
  });
  const double variance = target_squares / (n - 1);
  const double deviations = std::sqrt(prediction_squares / (n - 1)) * std::sqrt(variance);
  const double mse = sums.squared / n;
  const double mae = sums.absolute / n;
  return {.mse = mse,
          .mae = mae,
          .nmse = mse / (target2 / n + kWellEpsilon),
          .nmae = mae / (target_size / n + kWellEpsilon),
          .vmse = mse / (variance + kWellEpsilon),
          .linfinity = sums.max,
          .pearson = products / n / (deviations + kWellEpsilon)};
}

double anomaly_correlation(const ChannelPair& pair, std::span<const double> climatology, bool is_centered) {
  double weights = 0;
  double predictions = 0;
  double targets = 0;
  for_each_point(pair, [&](std::size_t i, double weight) {
    weights += weight;
    predictions += weight * (pair.prediction[i] - climatology[i]);
    targets += weight * (pair.target[i] - climatology[i]);
  });
  const double prediction_mean = is_centered ? predictions / weights : 0;
  const double target_mean = is_centered ? targets / weights : 0;
  double prediction_squares = 0;
  double target_squares = 0;
  double products = 0;
  for_each_point(pair, [&](std::size_t i, double weight) {
    const double p = pair.prediction[i] - climatology[i] - prediction_mean;
    const double t = pair.target[i] - climatology[i] - target_mean;
    prediction_squares += weight * p * p;
    target_squares += weight * t * t;
    products += weight * p * t;
  });
  return products / std::sqrt(prediction_squares * target_squares);
}

SpectralBands::SpectralBands(std::vector<std::size_t> space) : space_(std::move(space)) {
  constexpr double kBeyond = 1e-6;  // so that the shortest wave is inside of the last band
  const auto axes = static_cast<double>(space_.size());
  const auto longest = static_cast<double>(*std::ranges::max_element(space_));
  const auto first = static_cast<float>(std::log10(2 * std::numbers::pi / longest));
  const auto last = static_cast<float>(std::log10(std::numbers::pi * std::sqrt(axes) + kBeyond));
  const float step = (last - first) / static_cast<float>(kBands);
  for (std::size_t i = 1; i <= kBands; ++i) {  // computed from the nearer end
    const float exponent =
        2 * i <= kBands ? first + step * static_cast<float>(i) : last - step * static_cast<float>(kBands - i);
    edges_[i] = std::pow(10.0F, exponent);
  }
  const std::size_t points =
      std::accumulate(space_.begin(), space_.end(), std::size_t{1}, std::multiplies<std::size_t>());
  for (std::size_t point = 0; point < points; ++point) {
    const float wave = wave_length(position_of(point, space_), space_);
    const auto upper = std::ranges::upper_bound(edges_, wave);
    band_of_.push_back(static_cast<std::size_t>(upper - edges_.begin()) - 1);
  }
}

Bands SpectralBands::energies(std::span<const double> values) const {
  const auto transform = fourier_transform(values, space_);
  const auto points = static_cast<double>(values.size());
  Bands energies = {};
  for (std::size_t i = 0; i < transform.size(); ++i) {
    if (band_of_[i] < kBands) energies[band_of_[i]] += std::norm(transform[i]);
  }
  for (double& energy : energies) energy /= points * points;
  return energies;
}

std::size_t pde_bins(std::span<const std::size_t> space) {
  return space.size() == 1 ? space[0] / 2 + 1 : *std::ranges::min_element(space) / 2;
}

PdeErrors pde_errors(const ChannelPair& pair, std::span<const std::size_t> space) {
  const std::vector<double> errors = errors_of(pair);
  const auto points = static_cast<double>(errors.size());
  PdeErrors result{.energies = std::vector<double>(pde_bins(space))};
  double target2 = 0;
  double error2 = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    target2 += pair.target[i] * pair.target[i];
    error2 += errors[i] * errors[i];
    result.mean += errors[i] / points;
    result.max = larger(std::abs(errors[i]), result.max);
  }
  result.rmse = std::sqrt(error2 / points);
  result.nrmse = result.rmse / std::sqrt(target2 / points);
  result.boundary = boundary_error(errors, space);
  const auto transform = fourier_transform(errors, space);
  for (std::size_t i = 0; i < transform.size(); ++i) {
    const std::size_t bin = pde_bin(position_of(i, space), space);
    if (bin < result.energies.size()) result.energies[bin] += std::norm(transform[i]) / (points * points);
  }
  return result;
}

Bands pde_bands(std::span<const double> bins) {
  Bands means = {};
  for (std::size_t band = 0; band < kBands; ++band) {
    const std::size_t begin = std::min(kPdeBands[band], bins.size());
    const std::size_t end = std::min(kPdeBands[band + 1], bins.size());
    const auto part = bins.subspan(begin, end - begin);
    means[band] =
        part.empty() ? kNan : std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
  }
  return means;
}

}  // namespace lockstep::metrics
