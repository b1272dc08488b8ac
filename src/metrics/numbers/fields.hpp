// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

// Errors of one channel of one sample of fields. e is prediction - target. A point with the weight 0 does not count,
// and its values may be NaN.
namespace lockstep::metrics {

/// The values of one channel at all points of space, row-major.
struct ChannelPair {
  std::span<const double> prediction;
  std::span<const double> target;
  std::span<const double> weights = {};  ///< weights of the points, >= 0; empty = 1 for all

  std::size_t points() const noexcept { return target.size(); }
  double weight(std::size_t point) const { return weights.empty() ? 1 : weights[point]; }
  bool has_gaps() const;  ///< whether a point has the weight 0
};

/// e of each point.
std::vector<double> errors_of(const ChannelPair& pair);

/// Sums over points, which add up over samples.
struct FieldSums {
  double weight = 0;    ///< sum of the weights
  double squared = 0;   ///< sum of weight * e^2
  double absolute = 0;  ///< sum of weight * |e|
  double error = 0;     ///< sum of weight * e
  double max = 0;       ///< largest |e|; NaN if an error is
};
FieldSums field_sums(const ChannelPair& pair);

/// The errors of The Well's benchmark. Variances are those of samples (n - 1); 1e-7 is added to each divisor.
struct WellErrors {
  double mse = 0;
  double mae = 0;
  double nmse = 0;       ///< mse / mean of target^2
  double nmae = 0;       ///< mae / mean of |target|
  double vmse = 0;       ///< mse / variance of the target
  double linfinity = 0;  ///< largest |e|
  double pearson = 0;    ///< covariance, a mean over n, by the deviations, so that 1 is not reached

  double rmse() const;
  double nrmse() const;  ///< root of nmse
  double vrmse() const;  ///< root of vmse
};
/// @param pair  weights of 0 and 1 only
WellErrors well_errors(const ChannelPair& pair);

/// The correlation of the differences of prediction and target to a climatology, weighted; in [-1, 1], or NaN if a
/// difference is 0 at all points.
/// @param climatology  as many values as points
/// @param is_centered  whether the weighted means are subtracted first
double anomaly_correlation(const ChannelPair& pair, std::span<const double> climatology, bool is_centered);

inline constexpr std::size_t kBands = 3;  ///< low, mid and high wave numbers
using Bands = std::array<double, kBands>;

/// The wave numbers of fields in three bands. Its edges are at equal distances on a logarithmic scale, between the
/// longest wave of the longest axis and the shortest diagonal one; the first is then 0. Source: The Well's benchmark,
/// which computes wave numbers and edges in float32, as here: otherwise a wave number at an edge could be in the other
/// band.
class SpectralBands {
 public:
  /// @param space  1 to 3 sizes >= 1
  explicit SpectralBands(std::vector<std::size_t> space);

  const std::array<float, kBands + 1>& edges() const noexcept { return edges_; }
  /// The energy of each band: the bands add up to the mean of the squares of the values.
  Bands energies(std::span<const double> values) const;

 private:
  std::vector<std::size_t> space_;
  std::array<float, kBands + 1> edges_ = {};
  std::vector<std::size_t> band_of_;  // band of each element of the transform; kBands = none
};

/// The numbers of PDEBench that are computed for each sample; the others follow from their means over samples.
struct PdeErrors {
  double rmse = 0;      ///< root of the mean of e^2
  double nrmse = 0;     ///< rmse by the root of the mean of target^2
  double mean = 0;      ///< mean of e, whose root mean square over samples is the error of the conserved quantity
  double max = 0;       ///< largest |e|
  double boundary = 0;  ///< root of the mean of e^2 over the points at both ends of each axis
  std::vector<double> energies = {};  ///< sum of |transform of e|^2 in each bin, by the squared number of points
};
/// The number of bins: n / 2 + 1 wave numbers in 1 dimension; otherwise the whole numbers below half of the shortest
/// axis, to which the lengths of the wave vectors without negative components are rounded down.
std::size_t pde_bins(std::span<const std::size_t> space);
/// @param pair   weights do not count
/// @param space  1 to 3 sizes
PdeErrors pde_errors(const ChannelPair& pair, std::span<const std::size_t> space);

/// The means over bins 0 to 3, 4 to 11, and all others; NaN of no bin.
/// @param bins  root mean square over samples of each bin
Bands pde_bands(std::span<const double> bins);

}  // namespace lockstep::metrics
