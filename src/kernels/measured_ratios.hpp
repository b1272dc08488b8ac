// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>

#include "kernels/kernels.hpp"

// tools/bench/kernels --write writes the rows. Do not edit them: this table alone chooses between a kernel and the
// library that it replaces.
//
// A kernel is used where the ratio of its time to that of the library is below 1. There are rows only for what was
// measured. Without a row for a vendor, that of the other vendor counts, except for kernels with KernelRow::is_vendors.
// Without a row for amx, those of avx512 count there. Without any row, the levels in kKernelRows count.
namespace lockstep::kernels {

inline constexpr std::initializer_list<MeasuredRatio> kMeasuredRatios = {
    {Kernel::attention, ProcessorLevel::avx2, ProcessorVendor::amd, 0.726},
    {Kernel::batch_norm, ProcessorLevel::avx2, ProcessorVendor::amd, 0.699},
    {Kernel::depthwise, ProcessorLevel::avx2, ProcessorVendor::amd, 0.548},
    {Kernel::gelu, ProcessorLevel::avx2, ProcessorVendor::amd, 1.342},
    {Kernel::gelu_gradient, ProcessorLevel::avx2, ProcessorVendor::amd, 0.688},
    {Kernel::outer_product, ProcessorLevel::avx2, ProcessorVendor::amd, 0.884},
    {Kernel::patch_product, ProcessorLevel::avx2, ProcessorVendor::amd, 0.504},
    {Kernel::rounded_products, ProcessorLevel::avx2, ProcessorVendor::amd, 0.101},
    {Kernel::winograd, ProcessorLevel::avx2, ProcessorVendor::amd, 0.429},
    {Kernel::attention, ProcessorLevel::generic, ProcessorVendor::amd, 6.280},
    {Kernel::batch_norm, ProcessorLevel::generic, ProcessorVendor::amd, 0.221},
    {Kernel::depthwise, ProcessorLevel::generic, ProcessorVendor::amd, 0.740},
    {Kernel::gelu, ProcessorLevel::generic, ProcessorVendor::amd, 1.327},
    {Kernel::gelu_gradient, ProcessorLevel::generic, ProcessorVendor::amd, 0.581},
    {Kernel::outer_product, ProcessorLevel::generic, ProcessorVendor::amd, 0.980},
    {Kernel::patch_product, ProcessorLevel::generic, ProcessorVendor::amd, 7.069},
    {Kernel::rounded_products, ProcessorLevel::generic, ProcessorVendor::amd, 0.177},
    {Kernel::winograd, ProcessorLevel::generic, ProcessorVendor::amd, 3.395},
    {Kernel::attention, ProcessorLevel::amx, ProcessorVendor::intel, 0.742},
    {Kernel::batch_norm, ProcessorLevel::amx, ProcessorVendor::intel, 0.668},
    {Kernel::depthwise, ProcessorLevel::amx, ProcessorVendor::intel, 0.560},
    {Kernel::few_rows, ProcessorLevel::amx, ProcessorVendor::intel, 1.144},
    {Kernel::gelu, ProcessorLevel::amx, ProcessorVendor::intel, 1.537},
    {Kernel::gelu_gradient, ProcessorLevel::amx, ProcessorVendor::intel, 0.790},
    {Kernel::linear, ProcessorLevel::amx, ProcessorVendor::intel, 1.087},
    {Kernel::linear_gradient, ProcessorLevel::amx, ProcessorVendor::intel, 1.001},
    {Kernel::outer_product, ProcessorLevel::amx, ProcessorVendor::intel, 1.463},
    {Kernel::patch_product, ProcessorLevel::amx, ProcessorVendor::intel, 0.858},
    {Kernel::rounded_attention, ProcessorLevel::amx, ProcessorVendor::intel, 0.348},
    {Kernel::rounded_depthwise, ProcessorLevel::amx, ProcessorVendor::intel, 0.313},
    {Kernel::rounded_products, ProcessorLevel::amx, ProcessorVendor::intel, 2.150},
    {Kernel::shallow_linear, ProcessorLevel::amx, ProcessorVendor::intel, 0.837},
    {Kernel::winograd, ProcessorLevel::amx, ProcessorVendor::intel, 0.542},
    {Kernel::attention, ProcessorLevel::avx2, ProcessorVendor::intel, 0.792},
    {Kernel::batch_norm, ProcessorLevel::avx2, ProcessorVendor::intel, 0.784},
    {Kernel::depthwise, ProcessorLevel::avx2, ProcessorVendor::intel, 0.642},
    {Kernel::few_rows, ProcessorLevel::avx2, ProcessorVendor::intel, 1.064},
    {Kernel::gelu, ProcessorLevel::avx2, ProcessorVendor::intel, 1.005},
    {Kernel::gelu_gradient, ProcessorLevel::avx2, ProcessorVendor::intel, 0.744},
    {Kernel::linear, ProcessorLevel::avx2, ProcessorVendor::intel, 1.046},
    {Kernel::linear_gradient, ProcessorLevel::avx2, ProcessorVendor::intel, 0.984},
    {Kernel::outer_product, ProcessorLevel::avx2, ProcessorVendor::intel, 1.564},
    {Kernel::patch_product, ProcessorLevel::avx2, ProcessorVendor::intel, 0.731},
    {Kernel::rounded_attention, ProcessorLevel::avx2, ProcessorVendor::intel, 0.241},
    {Kernel::rounded_depthwise, ProcessorLevel::avx2, ProcessorVendor::intel, 0.017},
    {Kernel::rounded_products, ProcessorLevel::avx2, ProcessorVendor::intel, 0.095},
    {Kernel::shallow_linear, ProcessorLevel::avx2, ProcessorVendor::intel, 1.006},
    {Kernel::winograd, ProcessorLevel::avx2, ProcessorVendor::intel, 0.448},
    {Kernel::attention, ProcessorLevel::avx512, ProcessorVendor::intel, 0.770},
    {Kernel::batch_norm, ProcessorLevel::avx512, ProcessorVendor::intel, 0.651},
    {Kernel::depthwise, ProcessorLevel::avx512, ProcessorVendor::intel, 0.513},
    {Kernel::few_rows, ProcessorLevel::avx512, ProcessorVendor::intel, 1.133},
    {Kernel::gelu, ProcessorLevel::avx512, ProcessorVendor::intel, 1.315},
    {Kernel::gelu_gradient, ProcessorLevel::avx512, ProcessorVendor::intel, 0.786},
    {Kernel::linear, ProcessorLevel::avx512, ProcessorVendor::intel, 1.039},
    {Kernel::linear_gradient, ProcessorLevel::avx512, ProcessorVendor::intel, 0.917},
    {Kernel::outer_product, ProcessorLevel::avx512, ProcessorVendor::intel, 1.588},
    {Kernel::patch_product, ProcessorLevel::avx512, ProcessorVendor::intel, 0.841},
    {Kernel::rounded_attention, ProcessorLevel::avx512, ProcessorVendor::intel, 0.290},
    {Kernel::rounded_depthwise, ProcessorLevel::avx512, ProcessorVendor::intel, 0.331},
    {Kernel::rounded_products, ProcessorLevel::avx512, ProcessorVendor::intel, 0.667},
    {Kernel::shallow_linear, ProcessorLevel::avx512, ProcessorVendor::intel, 0.776},
    {Kernel::winograd, ProcessorLevel::avx512, ProcessorVendor::intel, 0.554},
    {Kernel::attention, ProcessorLevel::generic, ProcessorVendor::intel, 7.659},
    {Kernel::batch_norm, ProcessorLevel::generic, ProcessorVendor::intel, 0.196},
    {Kernel::depthwise, ProcessorLevel::generic, ProcessorVendor::intel, 0.849},
    {Kernel::few_rows, ProcessorLevel::generic, ProcessorVendor::intel, 0.948},
    {Kernel::gelu, ProcessorLevel::generic, ProcessorVendor::intel, 1.257},
    {Kernel::gelu_gradient, ProcessorLevel::generic, ProcessorVendor::intel, 0.540},
    {Kernel::linear, ProcessorLevel::generic, ProcessorVendor::intel, 0.950},
    {Kernel::linear_gradient, ProcessorLevel::generic, ProcessorVendor::intel, 0.982},
    {Kernel::outer_product, ProcessorLevel::generic, ProcessorVendor::intel, 0.930},
    {Kernel::patch_product, ProcessorLevel::generic, ProcessorVendor::intel, 7.816},
    {Kernel::rounded_attention, ProcessorLevel::generic, ProcessorVendor::intel, 4.347},
    {Kernel::rounded_depthwise, ProcessorLevel::generic, ProcessorVendor::intel, 0.046},
    {Kernel::rounded_products, ProcessorLevel::generic, ProcessorVendor::intel, 0.198},
    {Kernel::shallow_linear, ProcessorLevel::generic, ProcessorVendor::intel, 1.062},
    {Kernel::winograd, ProcessorLevel::generic, ProcessorVendor::intel, 3.691},
};

}  // namespace lockstep::kernels
