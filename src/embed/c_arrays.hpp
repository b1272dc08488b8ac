// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/session.hpp>

#include <span>

namespace lockstep::embed {

/// A tensor over the memory of the program, or a copy where strides do not allow one.
/// @throws DataError  the type or a dimension is not valid, or data is null although there are elements
at::Tensor tensor_of(const lockstep_array& array);
/// @throws DataError  also: an array has no name
SampleTensors tensors_of(std::span<const lockstep_array> arrays);

/// Writes a tensor into the memory of the program, with its type and strides.
/// @throws DataError  the shapes differ
void write_to(const lockstep_array& array, const at::Tensor& values);

}  // namespace lockstep::embed
