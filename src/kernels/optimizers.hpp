// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstddef>
#include <cstdint>

// Loops of optimizers and of averages of models.
namespace lockstep::kernels {

/// A sum in double, with the same bits for every vector width.
double sum_of_products(const float* a, const float* b, std::int64_t count);
double sum_of_products(const double* a, const double* b, std::int64_t count);
double sum_of_squares(const float* values, std::int64_t count);
double sum_of_squares(const double* values, std::int64_t count);

/// The type of the average of values: float32 for 16-bit values, else that of the values.
DType average_type(DType dtype);

// Operations on `count` values of any floating-point type.

/// average += weight * (values - average); with weight 1 the values themselves.
void blend(DType dtype, std::byte* average, const std::byte* values, std::int64_t count, double weight);
/// Functions of float32 and float64.
void exchange(DType dtype, std::byte* a, std::byte* b, std::int64_t count);

// Stochastic rounding of float32 to bfloat16: a number between two numbers of bfloat16 becomes one of them at random,
// with probabilities that make the expected value equal to the number. Numbers that bfloat16 can represent, infinities
// and NaN keep their values. The random bits are a function of a key and of the position of the element in its
// parameter, so that they depend neither on the division among ranks nor on earlier updates.

/// Selects the random bits of one update of one parameter.
struct RoundingKey {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

/// @param from   [count]
/// @param target  [count] bfloat16; alignment is not required
/// @param begin  position of the first element in its parameter
void round_stochastically(const float* from, std::byte* target, std::int64_t count, std::int64_t begin,
                          RoundingKey key);

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
