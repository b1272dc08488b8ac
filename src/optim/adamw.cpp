// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/core/error.hpp>

#include <algorithm>
#include <cmath>

#include "kernel.hpp"
#include "rules.hpp"

namespace lockstep::optim {

namespace {

template <class T>
struct Factors {
  T sign;       ///< of the gradient: -1 to maximize
  T keep;       ///< 1 - lr * weight_decay
  T step_size;  ///< lr / (1 - beta1^step)
  T take1;      ///< 1 - beta1
  T beta2;
  T take2;            ///< 1 - beta2
  T root_correction;  ///< sqrt(1 - beta2^step)
  T eps;
};

template <class T>
LOCKSTEP_VECTORISED void update_plain(T* __restrict parameter, const T* __restrict gradient, T* __restrict mean,
                                      T* __restrict square, std::int64_t count, Factors<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = c.sign * gradient[i];
    mean[i] += c.take1 * (g - mean[i]);
    square[i] = c.beta2 * square[i] + c.take2 * g * g;
    const T denominator = std::sqrt(square[i]) / c.root_correction + c.eps;
    parameter[i] = c.keep * parameter[i] - c.step_size * (mean[i] / denominator);
  }
}

template <class T>
LOCKSTEP_VECTORISED void update_amsgrad(T* __restrict parameter, const T* __restrict gradient, T* __restrict mean,
                                        T* __restrict square, T* __restrict max_square, std::int64_t count,
                                        Factors<T> c) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = c.sign * gradient[i];
    mean[i] += c.take1 * (g - mean[i]);
    square[i] = c.beta2 * square[i] + c.take2 * g * g;
    max_square[i] = max_square[i] < square[i] ? square[i] : max_square[i];
    const T denominator = std::sqrt(max_square[i]) / c.root_correction + c.eps;
    parameter[i] = c.keep * parameter[i] - c.step_size * (mean[i] / denominator);
  }
}

enum : std::size_t { kSign, kKeep, kStepSize, kBeta1, kBeta2, kRootCorrection, kEps, kAmsgrad };

Coefficients coefficients(const Options& options, std::int64_t step) {
  const double lr = options.at("lr");
  const double beta1 = options.at("beta1");
  const double beta2 = options.at("beta2");
  const auto power = static_cast<double>(step);
  Coefficients c{};
  c[kSign] = options.at("maximize") != 0 ? -1 : 1;
  c[kKeep] = 1 - lr * options.at("weight_decay");
  c[kStepSize] = lr / (1 - std::pow(beta1, power));
  c[kBeta1] = beta1;
  c[kBeta2] = beta2;
  c[kRootCorrection] = std::sqrt(1 - std::pow(beta2, power));
  c[kEps] = options.at("eps");
  c[kAmsgrad] = options.at("amsgrad");
  return c;
}

template <class T>
void update(const Coefficients& c, const Stretch<T>& stretch) {
  const Factors<T> factors{.sign = static_cast<T>(c[kSign]),
                           .keep = static_cast<T>(c[kKeep]),
                           .step_size = static_cast<T>(c[kStepSize]),
                           .take1 = static_cast<T>(1 - c[kBeta1]),
                           .beta2 = static_cast<T>(c[kBeta2]),
                           .take2 = static_cast<T>(1 - c[kBeta2]),
                           .root_correction = static_cast<T>(c[kRootCorrection]),
                           .eps = static_cast<T>(c[kEps])};
  T* const* state = stretch.state;
  if (c[kAmsgrad] == 0) {
    update_plain(stretch.parameter, stretch.gradient, state[0], state[1], stretch.count, factors);
  } else {
    update_amsgrad(stretch.parameter, stretch.gradient, state[0], state[1], state[2], stretch.count, factors);
  }
}

Options read(const Section& optim) {
  const std::vector<double> betas = optim.reals("betas");
  const bool are_below_one = std::all_of(betas.begin(), betas.end(), [](double beta) { return beta < 1; });
  if (betas.size() != 2 || !are_below_one) {
    throw ConfigError(optim.cite("betas") + " must be two numbers in [0, 1), such as 0.9, 0.999");
  }
  return {{"beta1", betas[0]},
          {"beta2", betas[1]},
          {"eps", optim.real("eps")},
          {"amsgrad", optim.boolean("amsgrad") ? 1 : 0}};
}

std::vector<std::string> state_names(const Options& options) {
  if (options.at("amsgrad") == 0) return {"exp_avg", "exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
}

}  // namespace

Rule adamw_rule() {
  return {.name = "adamw",
          .help = "Adam with decoupled weight decay",
          .keys = {{.name = "optim.betas",
                    .type = KeyType::reals,
                    .default_value = "0.9, 0.999",
                    .help = "adamw: decay rates of the mean and of the mean square of the gradient, both below 1",
                    .min = 0,
                    .max = 1},
                   {.name = "optim.eps",
                    .type = KeyType::real,
                    .default_value = "1e-8",
                    .help = "adamw: added to the root of the mean square",
                    .min = 0},
                   {.name = "optim.amsgrad",
                    .type = KeyType::boolean,
                    .default_value = "false",
                    .help = "adamw: divide by the largest mean square so far"}},
          .read = read,
          .state_names = state_names,
          .coefficients = coefficients,
          .update32 = update<float>,
          .update64 = update<double>};
}

}  // namespace lockstep::optim
