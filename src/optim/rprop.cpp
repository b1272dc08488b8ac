// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include "kernel.hpp"
#include "options.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

enum : std::size_t { kSign, kStart, kShrink, kGrow, kLeast, kMost };

template <class T>
LOCKSTEP_VECTORISED void update(const Coefficients& c, const Stretch<T>& stretch) {
  const auto sign = static_cast<T>(c[kSign]);
  const auto start = static_cast<T>(c[kStart]);
  const auto shrink = static_cast<T>(c[kShrink]);
  const auto grow = static_cast<T>(c[kGrow]);
  const auto least = static_cast<T>(c[kLeast]);
  const auto most = static_cast<T>(c[kMost]);
  T* __restrict parameter = stretch.parameter;
  const T* __restrict gradient = stretch.gradient;
  T* __restrict previous = stretch.state[0];
  T* __restrict size = stretch.state[1];
  const std::int64_t count = stretch.count;
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = sign * gradient[i];
    const T agreement = g * previous[i];
    const T factor = agreement > 0 ? grow : agreement < 0 ? shrink : T{1};
    T length = (size[i] + start) * factor;
    length = length < least ? least : length;
    length = length > most ? most : length;
    const T used = agreement < 0 ? T{0} : g;  // after a change of sign it waits for one step
    const T direction = used > 0 ? T{1} : used < 0 ? T{-1} : used;
    size[i] = length;
    previous[i] = used;
    parameter[i] -= direction * length;
  }
}

Coefficients coefficients(const Options& options, std::int64_t step) {
  Coefficients c{};
  c[kSign] = options.at("maximize") != 0 ? -1 : 1;
  c[kStart] = step == 1 ? options.at("lr") : 0;  // the sizes are still zero
  c[kShrink] = options.at("shrink");
  c[kGrow] = options.at("grow");
  c[kLeast] = options.at("least");
  c[kMost] = options.at("most");
  return c;
}

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
    throw ConfigError(optim.cite("weight_decay") + " must be 0 for rprop, which only heeds the sign of the gradient");
  }
  return {{"shrink", etas[0]}, {"grow", etas[1]}, {"least", sizes[0]}, {"most", sizes[1]}};
}

std::vector<std::string> state_names(const Options&) { return {"prev", "step_size"}; }

}  // namespace

Rule rprop_rule() {
  return {.name = "rprop",
          .help = "a step size for each element, which the signs of its gradients change; for whole-set gradients",
          .keys = {{.name = "optim.etas",
                    .type = KeyType::reals,
                    .default_value = "0.5, 1.2",
                    .help = "rprop: factors of a step size when the gradient changes its sign and when it does not",
                    .min = 0},
                   {.name = "optim.step_sizes",
                    .type = KeyType::reals,
                    .default_value = "1e-6, 50",
                    .help = "rprop: smallest and largest step size; lr is the first one",
                    .min = 0}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
