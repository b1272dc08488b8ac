// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/dtype.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

// Where tensors meet communicators and flat memory: the one place that converts between the two worlds.
namespace lockstep::parallel {

/// @throws ConfigError  a LibTorch type that Lockstep does not know; `what` names the tensor
DType dtype_of(const at::Tensor& tensor, const std::string& what);
DType dtype_of(at::ScalarType type, const std::string& what);

/// The other way round.
at::ScalarType scalar_type_of(DType dtype);

/// A tensor of the shape and strides of `like` over memory at `data`, which `owner` keeps alive. Where `like` has gaps
/// or overlaps the view is row-major.
/// @param type  of the elements; default: that of `like`
at::Tensor view_of(std::byte* data, const at::Tensor& like, const std::shared_ptr<void>& owner);
at::Tensor view_of(std::byte* data, const at::Tensor& like, at::ScalarType type, const std::shared_ptr<void>& owner);

/// Whether every element of the tensor's memory belongs to exactly one index: a flat range can stand for it.
bool is_flat(const at::Tensor& tensor);

/// The memory of a tensor for which is_flat holds.
std::span<std::byte> bytes_of(const at::Tensor& tensor);

/// Gives every rank the values of `root`. Collective.
void broadcast(const at::Tensor& tensor, const mpi::Communicator& world, int root = 0);
void broadcast(const at::Tensor& tensor, mpi::Collectives& collectives, int root);

/// Reduces a tensor of any layout in place. Collective.
void all_reduce(const at::Tensor& tensor, mpi::Collectives& collectives, mpi::ReduceOp op);

}  // namespace lockstep::parallel
