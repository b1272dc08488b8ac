// SPDX-License-Identifier: BSD-3-Clause
#include <lockstep/random/random.hpp>

#include <cmath>

namespace lockstep::random {

namespace {

/// A trial is rejected with a probability below 0.05, so that the last one is never reached.
constexpr int kMaxTrials = 32;

/// The logarithm of a number with the distribution Gamma(shape, 1): for small shapes, the number itself may be 0.
double log_gamma_variate(Sequence& sequence, double shape) {
  const bool is_small = shape < 1;
  const double d = (is_small ? shape + 1 : shape) - 1.0 / 3.0;
  const double c = 1.0 / std::sqrt(9.0 * d);
  double cube = 1;
  for (int trial = 0; trial < kMaxTrials; ++trial) {
    const double x = sequence.normal();
    const double log_u = std::log(1.0 - sequence.uniform());
    const double root = 1.0 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (log_u >= 0.5 * x * x + d - d * v + d * std::log(v)) continue;
    cube = v;
    break;
  }
  const double value = std::log(d * cube);
  return is_small ? value + std::log(1.0 - sequence.uniform()) / shape : value;
}

}  // namespace

double beta_variate(Sequence& sequence, double alpha, double beta) {
  const double first = log_gamma_variate(sequence, alpha);
  const double second = log_gamma_variate(sequence, beta);
  return 1.0 / (1.0 + std::exp(second - first));
}

}  // namespace lockstep::random
