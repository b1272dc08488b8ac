// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <complex>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::metrics {

/// The discrete Fourier transform of real values along all axes, not divided by their number. Sizes with small prime
/// factors are fast: an axis of n points takes n operations for the sum of the prime factors of n.
/// @param values  row-major, as many as the product of `shape`
/// @param shape   sizes >= 1
std::vector<std::complex<double>> fourier_transform(std::span<const double> values, std::span<const std::size_t> shape);

/// The whole number of waves of an index: 0, 1, ..., then negative ones from -(n / 2).
double wave_number(std::size_t index, std::size_t size);

}  // namespace lockstep::metrics
