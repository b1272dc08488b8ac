// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kPull, kLr, kAlpha, kEps, kMomentum, kCentered };

/// @param mean    of the gradient, where kIsCentered
/// @param buffer  the velocity, where kHasMomentum
template <bool kIsCentered, bool kHasMomentum, class T>
LOCKSTEP_VECTORISED void update_elements(const Coefficients& c, const Stretch<T>& stretch, T* __restrict mean,
                                         T* __restrict buffer) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto pull = static_cast<T>(c[kPull]);
  const auto lr = static_cast<T>(c[kLr]);
  const auto alpha = static_cast<T>(c[kAlpha]);
  const auto take = static_cast<T>(1 - c[kAlpha]);
  const auto eps = static_cast<T>(c[kEps]);
  const auto momentum = static_cast<T>(c[kMomentum]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict square = stretch.state[0];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + pull * parameter[i];
    square[i] = alpha * square[i] + take * g * g;
    T variance = square[i];
    if constexpr (kIsCentered) {
      mean[i] += take * (g - mean[i]);
      variance -= mean[i] * mean[i];
      variance = variance > 0 ? variance : T{0};  // rounding may have made it negative
    }
    const T scaled = g / (std::sqrt(variance) + eps);
    if constexpr (kHasMomentum) {
      buffer[i] = momentum * buffer[i] + scaled;
      parameter[i] -= lr * buffer[i];
    } else {
      parameter[i] -= lr * scaled;
    }
  }
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  T* const* state = stretch.state;
  if (c[kCentered] == 0 && c[kMomentum] == 0) return update_elements<false, false, T>(c, stretch, nullptr, nullptr);
  if (c[kCentered] == 0) return update_elements<false, true, T>(c, stretch, nullptr, state[1]);
  if (c[kMomentum] == 0) return update_elements<true, false, T>(c, stretch, state[1], nullptr);
  update_elements<true, true, T>(c, stretch, state[1], state[2]);
}

Coefficients coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kPull] = terms.pull;
  c[kLr] = options.at("lr");
  c[kAlpha] = options.at("alpha");
  c[kEps] = options.at("eps");
  c[kMomentum] = options.at("momentum");
  c[kCentered] = options.at("centered");
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"alpha", "eps", "momentum"});
  read_flags(optim, options, {"centered"});
  return options;
}

std::vector<std::string> state_names(const Options& options) {
  std::vector<std::string> names = {"square_avg"};
  if (options.at("centered") != 0) names.emplace_back("grad_avg");
  if (options.at("momentum") != 0) names.emplace_back("momentum_buffer");
  return names;
}

}  // namespace

Rule rmsprop_rule() {
  return {.name = "rmsprop",
          .help = "divides by the root of the mean square of the gradient",
          .keys = {momentum_keys().front(),
                   eps_key(),
                   {.name = "optim.alpha",
                    .type = KeyType::real,
                    .default_value = "0.99",
                    .help = "rmsprop: decay rate of the mean square",
                    .min = 0,
                    .max = 1},
                   {.name = "optim.centered",
                    .type = KeyType::boolean,
                    .default_value = "false",
                    .help = "rmsprop: divide by the root of the variance instead"}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
