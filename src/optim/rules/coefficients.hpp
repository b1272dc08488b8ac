// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/optim/rule.hpp>

#include <cstdint>

// The coefficients of the rules, which their loops over elements and their forms for tensors share. Each function
// computes them from the options for the update number `step` of a parameter, from 1.

namespace lockstep::optim {

struct AdadeltaCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double lr;
  double rho;
  double eps;
};

AdadeltaCoefficients adadelta_coefficients(const Options& options, std::int64_t step);

struct AdagradCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double step_size;
  double eps;
  double sum_factor;   ///< multiplies the stored sum: 0 in the first update
  double initial_sum;  ///< initial value of the sum in the first update; then 0
};

AdagradCoefficients adagrad_coefficients(const Options& options, std::int64_t step);

struct AdamaxCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double step_size;
  double beta1;
  double beta2;
  double eps;
};

AdamaxCoefficients adamax_coefficients(const Options& options, std::int64_t step);

struct AsgdCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double decay_factor;    ///< multiplies the parameter
  double step_size;
  double average_share;  ///< share of the way by which the average moves towards the parameter
};

AsgdCoefficients asgd_coefficients(const Options& options, std::int64_t step);

struct LionCoefficients {
  double sign;          ///< multiplies the gradient: 1, or -1 to maximize
  double decay_factor;  ///< decoupled weight decay: multiplies the parameter
  double lr;
  double beta1;
  double beta2;
  double caution;  ///< multiplies what moves along with its gradient; 0 = everything moves
};

LionCoefficients lion_coefficients(const Options& options, std::int64_t step);

struct NadamCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double decay_factor;    ///< decoupled weight decay: multiplies the parameter
  double beta1;
  double beta2;
  double correction2;  ///< 1 - beta2^step
  double eps;
  double gradient_step;  ///< multiplies the gradient over its root mean square
  double mean_step;      ///< multiplies the mean over it
};

NadamCoefficients nadam_coefficients(const Options& options, std::int64_t step);

struct RAdamCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double decay_factor;    ///< decoupled weight decay: multiplies the parameter
  double beta1;
  double beta2;
  double eps;
  double step_size;
  bool is_rectified;
};

RAdamCoefficients radam_coefficients(const Options& options, std::int64_t step);

struct RmsPropCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double lr;
  double alpha;
  double eps;
  double momentum;
  bool is_centered;
};

RmsPropCoefficients rmsprop_coefficients(const Options& options, std::int64_t step);

struct RpropCoefficients {
  double sign;        ///< multiplies the gradient: 1, or -1 to maximize
  double first_size;  ///< added to all step sizes: lr in the first update, in which they are 0
  double shrink;
  double grow;
  double min_size;
  double max_size;
};

RpropCoefficients rprop_coefficients(const Options& options, std::int64_t step);

struct LarsCoefficients {
  double sign;            ///< multiplies the gradient: 1, or -1 to maximize
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double lr;
  double momentum;
  double gradient_share;  ///< share of the gradient that enters the momentum buffer
  bool is_nesterov;
  bool has_joint_norm;
  double ratio = 1;  ///< how far the parameter moves in relation to its own size
};

LarsCoefficients lars_coefficients(const Options& options, std::int64_t step);

struct LambCoefficients {
  double gradient_scale;  ///< sign of the gradient, times what scales all gradients down to max_grad_norm
  double beta1;
  double gradient_share;  ///< share of the gradient that enters the mean
  double beta2;
  double correction1;       ///< 1 - beta1^step
  double root_correction2;  ///< sqrt(1 - beta2^step)
  double eps;
  double l2_coefficient;  ///< weight decay that is added to the gradient
  double decay_factor;    ///< decoupled weight decay: multiplies the parameter
  double step_size;
  bool was_measured = false;  ///< measuring has updated the moments
};

LambCoefficients lamb_coefficients(const Options& options, std::int64_t step);

}  // namespace lockstep::optim
