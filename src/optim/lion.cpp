// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kKeep, kLr, kBeta1, kBeta2, kCaution };

/// @tparam kIsCautious  elements whose update opposes the gradient stay; the others move further in their place
template <bool kIsCautious, class T>
LOCKSTEP_VECTORISED void update_elements(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto keep = static_cast<T>(c[kKeep]);
  const auto lr = static_cast<T>(c[kLr]);
  const auto beta1 = static_cast<T>(c[kBeta1]);
  const auto take1 = static_cast<T>(1 - c[kBeta1]);
  const auto take2 = static_cast<T>(1 - c[kBeta2]);
  const auto caution = static_cast<T>(c[kCaution]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict mean = stretch.state[0];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i];
    const T blend = beta1 * mean[i] + take1 * g;
    T direction = blend > 0 ? T{1} : blend < 0 ? T{-1} : blend;
    if constexpr (kIsCautious) direction *= direction * g > 0 ? caution : T{0};
    parameter[i] = keep * parameter[i] - lr * direction;
    mean[i] += take2 * (g - mean[i]);
  }
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  c[kCaution] != 0 ? update_elements<true, T>(c, stretch) : update_elements<false, T>(c, stretch);
}

/// How many elements would move along with the gradient.
template <class T>
LOCKSTEP_VECTORISED Sums measure(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto beta1 = static_cast<T>(c[kBeta1]);
  const auto take1 = static_cast<T>(1 - c[kBeta1]);
  std::int64_t agreeing = 0;
  for (std::int64_t i = 0; i < stretch.count; ++i) {
    const T g = sign * stretch.gradient[i];
    const T blend = beta1 * stretch.state[0][i] + take1 * g;
    agreeing += (blend > 0 && g > 0) || (blend < 0 && g < 0) ? 1 : 0;
  }
  return {static_cast<double>(agreeing)};
}

void adapt(Coefficients& c, const Options&, const Sums& sums, const Segment& segment) {
  c[kCaution] = 1 / std::max(sums[0] / static_cast<double>(segment.count), 1e-3);
}

Needs needs(const Options& options) { return {.sums = options.at("caution") != 0}; }

Coefficients coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/true);
  Coefficients c{};
  c[kSign] = terms.sign;
  c[kKeep] = terms.keep;
  c[kLr] = options.at("lr");
  c[kBeta1] = options.at("beta1");
  c[kBeta2] = options.at("beta2");
  c[kCaution] = options.at("caution");
  return c;
}

Options read(const Section& optim) {
  Options options;
  read_betas(optim, options);
  read_flags(optim, options, {"caution"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"exp_avg"}; }

}  // namespace

Rule lion_rule() {
  return {.name = "lion",
          .help = "steps of one length along the sign of a mean, with decoupled weight decay; lr a third of adamw's",
          .keys = {betas_key(),
                   {.name = "optim.caution",
                    .type = KeyType::boolean,
                    .default_value = "false",
                    .help = "lion: leave alone what would move against its gradient"}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>,
          .needs = needs,
          .measure32 = measure<float>,
          .measure64 = measure<double>,
          .adapt = adapt};
}

}  // namespace lockstep::optim
