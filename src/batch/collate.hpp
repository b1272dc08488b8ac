// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/batch/batch.hpp>

#include <span>

namespace c10 {
class Stream;
}

namespace lockstep::batch {

/// Joins samples to a batch. Maps are joined key by key and lists place by place; tensors are stacked, numbers become a
/// tensor [N] (int64 or float64), texts a list. Containers of N samples become one container of a list over groups,
/// runs of `samples_per_group` samples (the last may be shorter): of cpu_only, lists of what they held; of `stack`,
/// tensors [samples, ...], in which the last pad_dims dimensions were padded at their ends to the largest of the group;
/// else lists of tensors.
/// @param samples  at least one, all of one structure
/// @param draws    of the samples, which a message then calls by their numbers in the data set; may be empty
/// @throws DataError  they do not fit together; the message names the sample and the place, such as "meta.scale[1]"
Value collate(std::span<const Value> samples, std::int64_t samples_per_group = 1, std::span<const Draw> draws = {});

/// The batch of samples that are maps, for one model: containers hold one group.
/// @throws DataError  as above, or a sample is no map
Batch collated(std::span<const Value> samples, std::span<const Draw> draws);

/// The value for the model on one device: tensors moved to `device` (the same tensors where they are there already),
/// containers replaced by what they hold for the only group, that of cpu_only ones not moved; all else as it is. The
/// host does not wait for copies from page-locked memory.
/// @throws DataError  a container has several groups: all but one would be lost
Value scatter(const Value& value, const at::Device& device);
/// The same for every value of a batch. @throws DataError  naming the value
Batch scatter(Batch batch, const at::Device& device);

/// The memory of the tensors of a batch on the device of `stream` is not given to others before the work that is queued
/// there when they are released is done: they were allocated on another stream.
void record_stream(Batch& batch, const c10::Stream& stream);

/// Replaces every value that is neither map nor list. Tensors that stay cost nothing.
void change_leaves(Value& value, const std::function<void(Value&)>& change);

/// A batch whose tensors lie in page-locked memory, those in containers that are not cpu_only, too.
Batch pinned(Batch batch);

/// The values of the samples of a batch, if `value` is a list that has one element for each sample and these elements
/// are not tensors. A DataContainer with `cpu_only` is such a list, too.
/// @return [N], inside `value`; null if `value` is something else
const ValueList* values_of_samples(const Value& value, std::int64_t samples);

}  // namespace lockstep::batch
