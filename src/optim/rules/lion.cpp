// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <algorithm>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

/// @tparam kIsCautious  elements whose update opposes the gradient stay; the others move further in their place
template <bool kIsCautious, class T>
LOCKSTEP_INLINE void update_elements(const LionCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto decay_factor = static_cast<T>(c.decay_factor);
  const auto lr = static_cast<T>(c.lr);
  const auto beta1 = static_cast<T>(c.beta1);
  const auto take1 = static_cast<T>(1 - c.beta1);
  const auto take2 = static_cast<T>(1 - c.beta2);
  const auto caution = static_cast<T>(c.caution);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict mean = range.state[0];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i];
    const T blend = beta1 * mean[i] + take1 * g;
    T direction = blend > 0 ? T{1} : blend < 0 ? T{-1} : blend;
    if constexpr (kIsCautious) direction *= direction * g > 0 ? caution : T{0};
    parameter[i] = decay_factor * parameter[i] - lr * direction;
    mean[i] += take2 * (g - mean[i]);
  }
}

template <class T>
void update(const LionCoefficients& c, const ElementRange<T>& range) {
  c.caution != 0 ? at_level<update_elements<true, T>>(c, range) : at_level<update_elements<false, T>>(c, range);
}

/// How many elements would move along with the gradient.
template <class T>
LOCKSTEP_INLINE Sums measure(const LionCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto beta1 = static_cast<T>(c.beta1);
  const auto take1 = static_cast<T>(1 - c.beta1);
  std::int64_t agreeing = 0;
  for (std::int64_t i = 0; i < range.count; ++i) {
    const T g = sign * range.gradient[i];
    const T blend = beta1 * range.state[0][i] + take1 * g;
    agreeing += (blend > 0 && g > 0) || (blend < 0 && g < 0) ? 1 : 0;
  }
  return {static_cast<double>(agreeing)};
}

void adapt(LionCoefficients& c, const Options&, const Sums& sums, const Segment& segment) {
  c.caution = 1 / std::max(sums[0] / static_cast<double>(segment.count), 1e-3);
}

Needs needs(const Options& options) { return {.sums = options.at("caution") != 0}; }

}  // namespace

LionCoefficients lion_coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/true);
  return {.sign = terms.sign,
          .decay_factor = terms.decay_factor,
          .lr = options.at("lr"),
          .beta1 = options.at("beta1"),
          .beta2 = options.at("beta2"),
          .caution = options.at("caution")};
}

namespace {

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
          .help =
              "Lion: steps along the sign of the momentum, with decoupled weight decay; usually with a third of the lr "
              "of adamw",
          .keys = {betas_key(),
                   keys::boolean("optim.caution", "false",
                                 "lion: cautious updates, which skip elements that would move against their gradient")},
          .read = read,
          .state_names = state_names,
          .kind = TensorRule{.elements = {.coefficients = erased<lion_coefficients>,
                                          .update32 = erased<update<float>>,
                                          .update64 = erased<update<double>>,
                                          .update_tensors = update_lion_tensors},
                             .needs = needs,
                             .measure32 = erased<at_level<measure<float>>>,
                             .measure64 = erased<at_level<measure<double>>>,
                             .adapt = erased<adapt>}};
}

}  // namespace lockstep::optim
