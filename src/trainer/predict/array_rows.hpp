// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "engine/evaluation/predictions.hpp"

// Predictions as rows of one NumPy array.
namespace lockstep::trainer {

/// The rows of a batch: probabilities float32 [N, C], values of a regression, or masks uint8 (int32 with more than 256
/// classes) [N, H, W].
/// @throws ConfigError  the kind of the task has no such array
at::Tensor array_rows(const engine::BatchPredictions& predictions, std::int64_t classes);

/// The bytes of a tensor in row-major order.
std::string bytes_of_rows(const at::Tensor& rows);

/// The header of a .npy file (version 1.0).
/// @param rows   some rows, which define type and shape
/// @param count  number of rows of the array
std::string npy_header(const at::Tensor& rows, std::int64_t count);

/// A PNG file with class numbers as grey pixels.
/// @param mask  [H, W] int64 in [0, 255]
std::string mask_png(const at::Tensor& mask);

}  // namespace lockstep::trainer
