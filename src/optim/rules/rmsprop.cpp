// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

/// @param mean    of the gradient, where kIsCentered
/// @param buffer  the velocity, where kHasMomentum
template <bool kIsCentered, bool kHasMomentum, class T>
LOCKSTEP_INLINE void update_elements(const RmsPropCoefficients& c, const ElementRange<T>& range, T* __restrict mean,
                                     T* __restrict buffer) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto lr = static_cast<T>(c.lr);
  const auto alpha = static_cast<T>(c.alpha);
  const auto take = static_cast<T>(1 - c.alpha);
  const auto eps = static_cast<T>(c.eps);
  const auto momentum = static_cast<T>(c.momentum);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict square = range.state[0];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
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
void update(const RmsPropCoefficients& c, const ElementRange<T>& range) {
  T* const* state = range.state;
  if (!c.is_centered && c.momentum == 0) return at_level<update_elements<false, false, T>>(c, range, nullptr, nullptr);
  if (!c.is_centered) return at_level<update_elements<false, true, T>>(c, range, nullptr, state[1]);
  if (c.momentum == 0) return at_level<update_elements<true, false, T>>(c, range, state[1], nullptr);
  at_level<update_elements<true, true, T>>(c, range, state[1], state[2]);
}

}  // namespace

RmsPropCoefficients rmsprop_coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .lr = options.at("lr"),
          .alpha = options.at("alpha"),
          .eps = options.at("eps"),
          .momentum = options.at("momentum"),
          .is_centered = options.at("centered") != 0};
}

namespace {

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
          .help = "RMSprop",
          .keys = {momentum_keys().front(), eps_key(),
                   keys::real("optim.alpha", "0.99", "rmsprop: decay rate of the mean square", 0, 1),
                   keys::boolean("optim.centered", "false",
                                 "rmsprop: divide by the standard deviation of the gradient (centered RMSprop)")},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<rmsprop_coefficients>,
                              .update32 = erased<update<float>>,
                              .update64 = erased<update<double>>,
                              .update_tensors = update_rmsprop_tensors}};
}

}  // namespace lockstep::optim
