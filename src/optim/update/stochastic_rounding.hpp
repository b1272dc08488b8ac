// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>

#include <cstdint>
#include <string_view>

#include "kernels/optimizers.hpp"

// The keys of kernels/optimizers.hpp, and that rounding for tensors.
namespace lockstep::optim {

/// @param step  number of the update of the parameter
kernels::RoundingKey rounding_key(std::uint64_t seed, std::string_view parameter, std::int64_t step);

/// kernels::round_stochastically for a tensor on any device, with the same bits.
/// @param from  [n] float32
/// @return      [n] bfloat16
Tensor rounded_stochastically(const Tensor& from, std::int64_t begin, kernels::RoundingKey key);

}  // namespace lockstep::optim
