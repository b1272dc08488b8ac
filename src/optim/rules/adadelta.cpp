// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/keys.hpp>

#include <cmath>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
LOCKSTEP_INLINE void update(const AdadeltaCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto l2_coefficient = static_cast<T>(c.l2_coefficient);
  const auto lr = static_cast<T>(c.lr);
  const auto rho = static_cast<T>(c.rho);
  const auto take = static_cast<T>(1 - c.rho);
  const auto eps = static_cast<T>(c.eps);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict square = range.state[0];
  T* __restrict moved = range.state[1];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i] + l2_coefficient * parameter[i];
    square[i] = rho * square[i] + take * g * g;
    const T change = std::sqrt(moved[i] + eps) / std::sqrt(square[i] + eps) * g;
    moved[i] = rho * moved[i] + take * change * change;
    parameter[i] -= lr * change;
  }
}

}  // namespace

AdadeltaCoefficients adadelta_coefficients(const Options& options, std::int64_t) {
  const GradientTerms terms = gradient_terms(options, /*is_decoupled=*/false);
  return {.sign = terms.sign,
          .l2_coefficient = terms.l2_coefficient,
          .lr = options.at("lr"),
          .rho = options.at("rho"),
          .eps = options.at("eps")};
}

namespace {

Options read(const Section& optim) {
  Options options;
  read_numbers(optim, options, {"rho", "eps"});
  return options;
}

std::vector<std::string> state_names(const Options&) { return {"square_avg", "acc_delta"}; }

}  // namespace

Rule adadelta_rule() {
  return {.name = "adadelta",
          .help = "Adadelta; usually with lr=1",
          .keys = {eps_key(), keys::real("optim.rho", "0.9", "adadelta: decay rate of the mean squares", 0, 1)},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<adadelta_coefficients>,
                              .update32 = erased<at_level<update<float>>>,
                              .update64 = erased<at_level<update<double>>>,
                              .update_tensors = update_adadelta_tensors}};
}

}  // namespace lockstep::optim
