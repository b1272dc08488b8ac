// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/lockstep.h>
#include <lockstep/session.hpp>

#include <span>

#include "mpi/gpu/gpu.hpp"

namespace lockstep::embed {

/// A tensor over the memory of the program, or a copy where strides do not allow one.
/// @param gpu  of the run; null = the CPU
/// @throws DataError  the type or a dimension is not valid, data is null although there are elements, or the memory is
///                    not where the array says; on a GPU also: strides that no tensor has
at::Tensor tensor_of(const lockstep_array& array, const mpi::Gpu* gpu = nullptr);
/// @throws DataError  also: an array has no name
SampleTensors tensors_of(std::span<const lockstep_array> arrays, const mpi::Gpu* gpu = nullptr);

/// Copies values back that were written into a tensor of tensor_of, if that is a copy.
void write_back(const lockstep_array& array, const at::Tensor& written);

}  // namespace lockstep::embed
