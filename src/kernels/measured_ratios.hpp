// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>

#include "kernels/kernels.hpp"

// tools/bench/kernels --write writes the rows. Do not edit them: this table alone chooses between a kernel and the
// library that it replaces.
//
// A kernel is used where the ratio of its time to that of the library is below 1. There are rows only for what was
// measured. Without a row for a vendor, that of the other vendor counts. Without any row, the levels in kKernelRows
// count. The level amx has the choices of avx512.
namespace lockstep::kernels {

inline constexpr std::initializer_list<MeasuredRatio> kMeasuredRatios = {};

}  // namespace lockstep::kernels
