// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "kernel.hpp"
#include "slices.hpp"

namespace lockstep::optim {

namespace {

/// Sixteen running sums, so that every vector width adds in the same order.
template <class T>
LOCKSTEP_VECTORISED double sum_of_squares(const T* values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  std::array<double, kLanes> sums{};
  const std::int64_t whole = count - count % kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : sums) sum += lane;
  for (std::int64_t i = whole; i < count; ++i) sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return sum;
}

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

template <class T>
LOCKSTEP_VECTORISED void scale(T* values, std::int64_t count, T factor) {
  for (std::int64_t i = 0; i < count; ++i) values[i] *= factor;
}

/// A NaN stays.
template <class T>
LOCKSTEP_VECTORISED void clamp(T* values, std::int64_t count, T limit) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T value = values[i];
    values[i] = value > limit ? limit : value < -limit ? -limit : value;
  }
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

double gradient_norm(const FlatParameters& parameters, double norm_type) {
  if (!(norm_type > 0)) throw std::invalid_argument("gradient_norm: norm_type must be positive");
  if (std::isinf(norm_type)) {
    double largest = 0;
    for_each_gradient(parameters, [&largest](const auto* values, std::int64_t count) {
      largest = std::max(largest, largest_magnitude(values, count));
    });
    return parameters.max_over_slices(largest);
  }
  double sum = 0;
  for_each_gradient(parameters, [&sum, norm_type](const auto* values, std::int64_t count) {
    sum += norm_type == 2 ? sum_of_squares(values, count) : sum_of_powers(values, count, norm_type);
  });
  const double total = parameters.sum_over_slices(sum);
  return norm_type == 2 ? std::sqrt(total) : std::pow(total, 1 / norm_type);
}

void clip_gradients(FlatParameters& parameters, const Clip& clip, double norm) {
  // A norm of NaN makes every gradient NaN: nobody takes it for clipped.
  const double factor = clip.max_norm > 0 ? clip.max_norm / (norm + 1e-6) : 1;
  for_each_gradient(parameters, [&clip, factor](const auto* gradient, std::int64_t count) {
    using T = std::remove_cvref_t<decltype(*gradient)>;
    T* values = const_cast<T*>(gradient);
    if (!(factor >= 1)) scale(values, count, static_cast<T>(factor));
    if (clip.max_value > 0) clamp(values, count, static_cast<T>(clip.max_value));
  });
}

}  // namespace lockstep::optim
