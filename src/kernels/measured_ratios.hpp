// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <initializer_list>

#include "kernels/kernels.hpp"

// tools/bench/kernels --write writes the rows. Do not edit them: this table alone chooses between a kernel and the
// library that it replaces.
//
// A kernel is used where the ratio of its time to that of the library is below 1. There are rows only for what was
// measured. Without a row for a vendor, that of the other vendor counts. Without a row for amx, those of avx512 count
// there. Without any row, the levels in kKernelRows count.
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
    {Kernel::attention, ProcessorLevel::amx, ProcessorVendor::intel, 0.750},
    {Kernel::batch_norm, ProcessorLevel::amx, ProcessorVendor::intel, 0.709},
    {Kernel::depthwise, ProcessorLevel::amx, ProcessorVendor::intel, 0.529},
    {Kernel::gelu, ProcessorLevel::amx, ProcessorVendor::intel, 2.205},
    {Kernel::gelu_gradient, ProcessorLevel::amx, ProcessorVendor::intel, 1.222},
    {Kernel::outer_product, ProcessorLevel::amx, ProcessorVendor::intel, 1.599},
    {Kernel::patch_product, ProcessorLevel::amx, ProcessorVendor::intel, 0.864},
    {Kernel::rounded_products, ProcessorLevel::amx, ProcessorVendor::intel, 2.089},
    {Kernel::winograd, ProcessorLevel::amx, ProcessorVendor::intel, 0.552},
    {Kernel::attention, ProcessorLevel::avx2, ProcessorVendor::intel, 0.816},
    {Kernel::batch_norm, ProcessorLevel::avx2, ProcessorVendor::intel, 0.764},
    {Kernel::depthwise, ProcessorLevel::avx2, ProcessorVendor::intel, 0.601},
    {Kernel::gelu, ProcessorLevel::avx2, ProcessorVendor::intel, 1.572},
    {Kernel::gelu_gradient, ProcessorLevel::avx2, ProcessorVendor::intel, 1.028},
    {Kernel::outer_product, ProcessorLevel::avx2, ProcessorVendor::intel, 1.557},
    {Kernel::patch_product, ProcessorLevel::avx2, ProcessorVendor::intel, 0.728},
    {Kernel::rounded_products, ProcessorLevel::avx2, ProcessorVendor::intel, 0.096},
    {Kernel::winograd, ProcessorLevel::avx2, ProcessorVendor::intel, 0.439},
    {Kernel::attention, ProcessorLevel::avx512, ProcessorVendor::intel, 0.756},
    {Kernel::batch_norm, ProcessorLevel::avx512, ProcessorVendor::intel, 0.637},
    {Kernel::depthwise, ProcessorLevel::avx512, ProcessorVendor::intel, 0.509},
    {Kernel::gelu, ProcessorLevel::avx512, ProcessorVendor::intel, 2.157},
    {Kernel::gelu_gradient, ProcessorLevel::avx512, ProcessorVendor::intel, 1.107},
    {Kernel::outer_product, ProcessorLevel::avx512, ProcessorVendor::intel, 1.608},
    {Kernel::patch_product, ProcessorLevel::avx512, ProcessorVendor::intel, 0.858},
    {Kernel::rounded_products, ProcessorLevel::avx512, ProcessorVendor::intel, 0.651},
    {Kernel::winograd, ProcessorLevel::avx512, ProcessorVendor::intel, 0.538},
    {Kernel::attention, ProcessorLevel::generic, ProcessorVendor::intel, 6.845},
    {Kernel::batch_norm, ProcessorLevel::generic, ProcessorVendor::intel, 0.189},
    {Kernel::depthwise, ProcessorLevel::generic, ProcessorVendor::intel, 0.876},
    {Kernel::gelu, ProcessorLevel::generic, ProcessorVendor::intel, 1.247},
    {Kernel::gelu_gradient, ProcessorLevel::generic, ProcessorVendor::intel, 0.557},
    {Kernel::outer_product, ProcessorLevel::generic, ProcessorVendor::intel, 0.928},
    {Kernel::patch_product, ProcessorLevel::generic, ProcessorVendor::intel, 7.497},
    {Kernel::rounded_products, ProcessorLevel::generic, ProcessorVendor::intel, 0.203},
    {Kernel::winograd, ProcessorLevel::generic, ProcessorVendor::intel, 3.550},
};

}  // namespace lockstep::kernels
