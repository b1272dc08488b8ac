// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/mpi/collectives.hpp>

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::parallel {

/// @throws ConfigError  a gradient that is there and is not sparse
void require_sparse(const at::Tensor& gradient, const std::string& parameter);

/// Replaces the parameter's sparse gradient by the sum over ranks, divided by `divisor`: all ranks' indices and values
/// are gathered, and coalesced in rank order. Stays undefined where no rank has one. Collective.
void average_sparse(const at::Tensor& parameter, mpi::Collectives& collectives, int divisor);

}  // namespace lockstep::parallel
