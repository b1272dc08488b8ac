// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/half_format.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "piece_sums.hpp"

namespace lockstep::optim {

namespace {

template <class T>
double sum_of_powers(const T* values, std::int64_t count, double power) {
  double sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::pow(std::abs(static_cast<double>(values[i])), power);
  return sum;
}

/// Infinity where any value is not finite: a comparison would pass over a NaN.
template <class T>
double largest_magnitude(const T* values, std::int64_t count) {
  T largest = 0;
  bool are_finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const T magnitude = std::abs(values[i]);
    are_finite = are_finite && magnitude <= std::numeric_limits<T>::max();
    largest = magnitude > largest ? magnitude : largest;
  }
  return are_finite ? static_cast<double>(largest) : std::numeric_limits<double>::infinity();
}

/// What values contribute to a norm: a sum, or for an infinite norm_type a maximum.
template <class T>
double contribution(const T* values, std::int64_t count, double norm_type) {
  if (norm_type == 2) return sum_of_squares(values, count);
  if (std::isinf(norm_type)) return largest_magnitude(values, count);
  return sum_of_powers(values, count, norm_type);
}

double contribution(const GradientPiece& piece, DType dtype, double norm_type) {
  if (dtype == DType::float64)
    return contribution(reinterpret_cast<const double*>(piece.values), piece.count, norm_type);
  if (dtype == DType::float32)
    return contribution(reinterpret_cast<const float*>(piece.values), piece.count, norm_type);
  std::array<float, kPieceElements> widened;  // uninitialised: filled as far as it is used
  half_format(dtype).widen(piece.values, widened.data(), static_cast<std::size_t>(piece.count));
  return contribution(widened.data(), piece.count, norm_type);
}

}  // namespace

Clip Clip::parse(const std::string& text, const std::string& origin) {
  if (text.empty()) return {};
  Section numbers;
  for (const char* kind : {"norm", "value"}) {
    numbers.declare({.name = kind,
                     .type = KeyType::real,
                     .default_value = "0",
                     .help = "the limit",
                     .min = 0,
                     .min_is_exclusive = true});
  }
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  if (colon == std::string::npos || !numbers.has(kind)) {
    throw ConfigError(origin + ": '" + text + "' is not a way to clip; write norm:1.0, value:0.5 or nothing");
  }
  numbers.set(kind, text.substr(colon + 1), origin);
  return {.max_norm = numbers.real("norm"), .norm_type = 2, .max_value = numbers.real("value")};
}

double gradient_norm(FlatParameters& parameters, double norm_type) {
  if (!(norm_type > 0)) throw std::invalid_argument("gradient_norm: norm_type must be positive");
  const auto blocks = parameters.blocks();
  const PieceNumbers pieces(blocks);
  std::vector<double> contributions(pieces.count());
  parameters.visit_gradients(
      [&](const GradientPiece& piece) {
        contributions[pieces.place_of(piece)] = contribution(piece, blocks[piece.block].dtype, norm_type);
      },
      /*is_last=*/false);
  parameters.sum_over_owners(contributions);  // each has one owner: the others add 0
  if (contributions.empty()) return 0;
  if (std::isinf(norm_type)) return *std::max_element(contributions.begin(), contributions.end());
  const double total = sum_by_tree(contributions);
  return norm_type == 2 ? std::sqrt(total) : std::pow(total, 1 / norm_type);
}

GradientChange change_by(const Clip& clip, double norm) {
  GradientChange change;
  if (clip.max_norm > 0) {
    const double factor = clip.max_norm / (norm + 1e-6);
    if (!(factor >= 1)) change.factor = factor;  // a norm of NaN makes every gradient NaN: nobody takes it for clipped
  }
  if (clip.max_value > 0) change.limit = clip.max_value;
  return change;
}

}  // namespace lockstep::optim
