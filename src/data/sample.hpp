// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/value.hpp>

#include <memory>
#include <string>
#include <vector>

// What a model is given: made of a batch of lists by key.
namespace lockstep::data {

/// Which parts of a batch are the model's inputs, and which its targets.
struct SampleKeys {
  std::vector<std::string> inputs = {"data"};
  std::vector<std::string> targets = {"label"};

  bool operator==(const SampleKeys&) const = default;
};

/// A batch as data sets give it, by the default keys: {data: [input], label: [target]}, without a label where there is
/// no target, and what else it has by its names.
ValueMap keyed_batch(const Batch& batch);

/// Makes a sample of a batch:
///
///     input       what the only element of the input's list is; of several inputs a map of them by their keys
///     target      the same for targets
///     data_valid  the only element of its list, where the batch has it
///     all else    as it is in the batch, lists too; "input" and "target" of the batch, if no input or target, are left
///                 out
///
/// @throws ConfigError  there is no input or no target, or a key is given twice among either
/// @throws DataError    the batch has fewer keys than are asked for or lacks one; or something asked for, or
///                      data_valid, is no list of one element
ValueMap construct_sample(const ValueMap& batch, const SampleKeys& keys = {});

/// The tensor that a sample has as `key`.
/// @param key  "input", "target" or "data_valid"
/// @throws DataError  it has none; a map of several calls for a step of one's own
const at::Tensor& tensor_of(const ValueMap& sample, const std::string& key);

/// A data set whose samples have another of their parts as input and as target; all else stays under its name, the
/// input as "data" and the target as "label" where they are neither. With the default keys the data set itself.
/// @param keys  of several inputs the first is Batch::input and the others are in Batch::more; one target
/// @throws ConfigError  keys that make no sample, or the first one has no such part
/// @throws DataError    by get: a batch has no such part
std::shared_ptr<const Dataset> keyed(std::shared_ptr<const Dataset> dataset, const SampleKeys& keys);

}  // namespace lockstep::data
