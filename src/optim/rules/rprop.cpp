// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "core/numbers/at_level.hpp"
#include "optim/rules/coefficients.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
LOCKSTEP_INLINE void update(const RpropCoefficients& c, const ElementRange<T>& range) {
  const auto sign = static_cast<T>(c.sign);
  const auto first_size = static_cast<T>(c.first_size);
  const auto shrink = static_cast<T>(c.shrink);
  const auto grow = static_cast<T>(c.grow);
  const auto min_size = static_cast<T>(c.min_size);
  const auto max_size = static_cast<T>(c.max_size);
  T* __restrict parameter = range.parameter;
  const T* __restrict gradient = range.gradient;
  T* __restrict previous = range.state[0];
  T* __restrict size = range.state[1];
  const std::int64_t count = range.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i];
    const T agreement = g * previous[i];
    const T factor = agreement > 0 ? grow : agreement < 0 ? shrink : T{1};
    T length = (size[i] + first_size) * factor;
    length = length < min_size ? min_size : length;
    length = length > max_size ? max_size : length;
    const T used = agreement < 0 ? T{0} : g;  // a parameter whose gradient changed sign skips one step
    const T direction = used > 0 ? T{1} : used < 0 ? T{-1} : used;
    size[i] = length;
    previous[i] = used;
    parameter[i] -= direction * length;
  }
}

}  // namespace

RpropCoefficients rprop_coefficients(const Options& options, std::int64_t step) {
  return {.sign = options.at("maximize") != 0 ? -1.0 : 1.0,
          .first_size = step == 1 ? options.at("lr") : 0,
          .shrink = options.at("shrink"),
          .grow = options.at("grow"),
          .min_size = options.at("least"),
          .max_size = options.at("most")};
}

namespace {

Options read(const Section& optim) {
  const std::vector<double> etas = optim.reals("etas");
  if (etas.size() != 2 || !(0 < etas[0] && etas[0] < 1 && 1 < etas[1])) {
    throw ConfigError(optim.cite("etas") + " must be two numbers, one in (0, 1) and one above 1, such as 0.5, 1.2");
  }
  const std::vector<double> sizes = optim.reals("step_sizes");
  if (sizes.size() != 2 || sizes[0] > sizes[1]) {
    throw ConfigError(optim.cite("step_sizes") + " must be two numbers, the smaller first, such as 1e-6, 50");
  }
  if (optim.real("weight_decay") != 0) {
    throw ConfigError(optim.cite("weight_decay") + " must be 0 for rprop, which uses only the sign of the gradient");
  }
  return {{"shrink", etas[0]}, {"grow", etas[1]}, {"least", sizes[0]}, {"most", sizes[1]}};
}

std::vector<std::string> state_names(const Options&) { return {"prev", "step_size"}; }

}  // namespace

Rule rprop_rule() {
  return {.name = "rprop",
          .help = "Rprop: step sizes per element, adapted by the signs of the gradient; for full-batch training",
          .keys = {keys::reals(
                       "optim.etas", "0.5, 1.2",
                       "rprop: factors on the step size after a change of the sign of the gradient, and otherwise", 0),
                   keys::reals("optim.step_sizes", "1e-6, 50",
                               "rprop: minimum and maximum step size; lr is the initial step size", 0)},
          .read = read,
          .state_names = state_names,
          .kind = ElementRule{.coefficients = erased<rprop_coefficients>,
                              .update32 = erased<at_level<update<float>>>,
                              .update64 = erased<at_level<update<double>>>,
                              .update_tensors = update_rprop_tensors}};
}

}  // namespace lockstep::optim
