// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/tensor.hpp>
#include <lockstep/mpi/collectives.hpp>
#include <lockstep/mpi/communicator.hpp>

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

// The place where tensors meet communicators and flat memory: the one place that converts between the two worlds.
namespace lockstep::parallel {

/// @throws ConfigError  a LibTorch type that Lockstep does not know; `what` names the tensor
DType dtype_of(const at::Tensor& tensor, const std::string& what);
DType dtype_of(at::ScalarType type, const std::string& what);

/// The other way round.
at::ScalarType scalar_type_of(DType dtype);

/// A tensor of the shape and strides of `like` over memory at `data`, which `owner` keeps alive. Where `like` has gaps
/// or overlaps the view is row-major.
/// @param type  of the elements; default: that of `like`
at::Tensor view_of(std::byte* data, const at::Tensor& like, const std::shared_ptr<void>& owner,
                   std::optional<at::ScalarType> type = {});

/// [count] A vector over memory of a device, which `owner` keeps alive.
at::Tensor vector_over(void* data, std::int64_t count, at::ScalarType type, at::Device device,
                       const std::shared_ptr<void>& owner = nullptr);

/// Whether every element of the tensor's memory belongs to exactly one index: a flat range can stand for it.
bool is_flat(const at::Tensor& tensor);

/// The memory of a tensor for which is_flat holds.
std::span<std::byte> bytes_of(const at::Tensor& tensor);

/// Gives every rank the values of `root`. Collective.
void broadcast(const at::Tensor& tensor, const mpi::Communicator& world, int root = 0);
void broadcast(const at::Tensor& tensor, mpi::Collectives& collectives, int root);

/// Puts the ranks' tensors one behind the other: see Collectives::start_all_gather. A rank alone copies, wherever its
/// tensors lie. Collective.
/// @param mine  [count] on the device of `all`
/// @param all   [world_size * count] of the same type
mpi::Ticket start_all_gather(const at::Tensor& mine, const at::Tensor& all, mpi::Collectives& collectives);

/// The same for slices of any sizes: rank r has the elements [borders[r], borders[r + 1]) of `all`. If sizes differ, it
/// adds the bits of slices as integers to zeros, which is one operation for any number of ranks. Collective.
/// @param mine  can be at its place in `all` if sizes differ
mpi::Ticket start_all_gather(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders,
                             mpi::Collectives& collectives);

/// Returns when `all` can be used. If sizes are equal or on GPUs one operation, else a broadcast from each rank.
/// Collective.
void all_gather(const at::Tensor& mine, const at::Tensor& all, std::span<const std::int64_t> borders,
                mpi::Collectives& collectives);

/// Whether every rank has as many elements.
bool are_even(std::span<const std::int64_t> borders);

/// Gives each rank its slice of the result: see Collectives::start_reduce_scatter. A rank alone copies. Collective.
/// @param values  [world_size * count] on the device of `slice`
/// @param slice   [count] of the same type
mpi::Ticket start_reduce_scatter(const at::Tensor& values, const at::Tensor& slice, mpi::Collectives& collectives,
                                 mpi::ReduceOp op);

/// Starts the reduction of a tensor without gaps, in place. Collective.
mpi::Ticket start_all_reduce(const at::Tensor& values, mpi::Collectives& collectives, mpi::ReduceOp op);

/// Reduces a tensor of any layout in place. Collective.
void all_reduce(const at::Tensor& tensor, mpi::Collectives& collectives, mpi::ReduceOp op);

}  // namespace lockstep::parallel
