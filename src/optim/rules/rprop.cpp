// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>
#include <lockstep/core/keys.hpp>

#include "optim/rules/element_rule.hpp"
#include "optim/rules/options.hpp"
#include "optim/rules/rules.hpp"

namespace lockstep::optim {

namespace {

struct Rprop {
  Coefficient gradient_sign;  ///< multiplies the gradient: 1, or -1 to maximize
  Coefficient first_size;     ///< added to all step sizes: lr in the first update, in which they are 0
  Coefficient shrink;
  Coefficient grow;
  Coefficient min_size;
  Coefficient max_size;

  static constexpr std::size_t kStates = 2;

  template <class T>
  LOCKSTEP_INLINE void update(Element<T>& e) const {
    T& previous = e.state[0];
    T& size = e.state[1];
    const T g = gradient_sign * e.gradient;
    const T product = g * previous;
    size = clamped(T(size + first_size) * by_sign(product, grow, shrink), min_size, max_size);
    previous = zero_where_negative(g, product);  // a parameter whose gradient changed sign skips one step
    e.parameter = minus_product(e.parameter, sign(previous), size);
  }
};

Rprop rprop(const Options& options, std::int64_t step) {
  return {.gradient_sign = options.at("maximize") != 0 ? -1.0 : 1.0,
          .first_size = step == 1 ? options.at("lr") : 0,
          .shrink = options.at("shrink"),
          .grow = options.at("grow"),
          .min_size = options.at("least"),
          .max_size = options.at("most")};
}

Options read_rprop(const Section& optim) {
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

std::vector<std::string> rprop_states(const Options&) { return {"prev", "step_size"}; }

}  // namespace

Rule rprop_rule() {
  return {.name = "rprop",
          .help = "Rprop: step sizes per element, adapted by the signs of the gradient; for full-batch training",
          .keys = {lr_key("0.01"),
                   keys::reals(
                       "optim.etas", "0.5, 1.2",
                       "rprop: factors on the step size after a change of the sign of the gradient, and otherwise", 0),
                   keys::reals("optim.step_sizes", "1e-6, 50",
                               "rprop: minimum and maximum step size; lr is the initial step size", 0)},
          .read = read_rprop,
          .state_names = rprop_states,
          .kind = element_rule<rprop>()};
}

}  // namespace lockstep::optim
