// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>

namespace lockstep::kernels {

/// `count` matrices of `rows` x `columns`, one after another, each row by row without gaps. None of them is 0.
template <class T>
struct AdafactorMatrices {
  T* parameters;       ///< [count, rows, columns]
  const T* gradients;  ///< [count, rows, columns]
  T* of_rows;          ///< [count, rows] mean squares of the gradients' rows
  T* of_columns;       ///< [count, columns]
  std::int64_t count;
  std::int64_t rows;
  std::int64_t columns;
};

struct AdafactorNumbers {
  double take;          ///< fraction by which mean squares move toward the new ones
  double sign;          ///< multiplies the gradient: 1, or -1 to maximize
  double relative_lr;   ///< lr as a fraction of the parameter's root mean square
  double decay_factor;  ///< multiplies the parameter
  double eps1;
  double eps2;
  double d;
};

/// One update of one parameter. Reads the gradient three times and the parameter twice, and writes it once.
void update_by_adafactor(const AdafactorMatrices<float>& matrices, const AdafactorNumbers& numbers);
void update_by_adafactor(const AdafactorMatrices<double>& matrices, const AdafactorNumbers& numbers);

}  // namespace lockstep::kernels
