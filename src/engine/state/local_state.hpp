// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/engine/stateful.hpp>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "parallel/store/parameter_store.hpp"

// Arrays that lie like the parameters, and of which each rank may hold a part: optimizer state, averages.
namespace lockstep::engine {

/// The elements that this rank holds, [n] in the order of the strides. A view.
at::Tensor elements_of(const LocalState& local);
/// The same elements of stored values.
at::Tensor part_of(const LocalState& local, const checkpoints::Array& saved);

/// The stored array, when it is there and fits; else null.
const checkpoints::Array* fitting(const checkpoints::Archive& archive, const std::string& path, const at::Tensor& live);
/// Unless the values were read straight to there.
void copy_to(const at::Tensor& live, const checkpoints::Array& saved);
/// Takes the stored values, where they fit.
void load(const checkpoints::Archive& archive, const LocalState& local);
/// @throws CheckpointError  a stored array fits, but the run holds other values
void verify(const checkpoints::Archive& archive, const LocalState& local);

/// The arrays that lie like the parameters of one block: an array for each. Collective where parameters are sharded.
/// @param of_block  as ParameterStore::segments_of takes it
/// @param dtype     of its elements
void capture_block(const StateWriter& writer, const std::string& group, parallel::ParameterStore& store,
                   std::size_t block, std::span<std::byte> of_block, DType dtype);

/// The part on this rank of an array with the layout of one parameter of a block; nullopt = none.
/// @param group     of the array's path, which ends with the parameter's name
/// @param of_block  the arrays of the whole block, as FlatParameters::allocate gave them
/// @param dtype     of its elements
std::optional<LocalState> local_state(const parallel::ParameterStore& store, const std::string& group,
                                      std::size_t block, std::size_t segment, std::span<std::byte> of_block,
                                      DType dtype);

}  // namespace lockstep::engine
