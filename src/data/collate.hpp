// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/value.hpp>

#include <span>

namespace lockstep::data {

/// Joins samples to a batch. Maps are joined key by key and lists place by place; tensors are stacked, numbers become a
/// tensor [N] (int64 or float64), texts a list. Containers of N samples become one container of a list over groups,
/// runs of `samples_per_group` samples (the last may be shorter): of cpu_only, lists of what they held; of `stack`,
/// tensors [samples, ...], in which the last pad_dims dimensions were padded at their ends to the largest of the group;
/// else lists of tensors.
/// @param samples  at least one, all of one structure
/// @throws DataError  they do not fit together; the message names the place, such as "meta.scale[1]"
Value collate(std::span<const Value> samples, std::int64_t samples_per_group = 1);

/// The same for samples without containers, which are refused.
Value default_collate(std::span<const Value> samples);

/// Joins maps and lists only: what is below stays a list of the samples' own values.
Value pseudo_collate(std::span<const Value> samples);

/// What the model on one device gets of a batch: tensors moved to `device` (the same tensors where they are there
/// already), containers replaced by what they hold for the only group, that of cpu_only ones not moved; all else as it
/// is.
/// @throws DataError  a container has several groups: all but one would be lost
Value scatter(const Value& batch, const at::Device& device, bool non_blocking = false);

/// Moves the tensors of a batch and leaves all else, containers too, as it is: the base preprocessor.
Value cast_data(const Value& batch, const at::Device& device, bool non_blocking = false);

}  // namespace lockstep::data
