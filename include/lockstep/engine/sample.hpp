// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/dataset.hpp>
#include <lockstep/data/value.hpp>

#include <string>
#include <vector>

// What the standard step gives to a model: made of a batch of lists by key.
namespace lockstep::engine {

/// Which parts of a batch are the model's inputs, and which its targets.
struct SampleKeys {
  std::vector<std::string> inputs = {"data"};
  std::vector<std::string> targets = {"label"};
};

/// A batch as data sets give it, by the default keys: {data: [input], label: [target]}, without a label where there is
/// no target.
data::ValueMap keyed_batch(const data::Batch& batch);

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
data::ValueMap construct_sample(const data::ValueMap& batch, const SampleKeys& keys = {});

/// The tensor that a sample has as `key`.
/// @param key  "input", "target" or "data_valid"
/// @throws DataError  it has none; a map of several calls for a step of one's own
const at::Tensor& tensor_of(const data::ValueMap& sample, const std::string& key);

}  // namespace lockstep::engine
