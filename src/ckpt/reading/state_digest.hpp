// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <vector>

#include "ckpt/reading/source.hpp"

namespace lockstep::ckpt {

/// One line of `ckpt hash`.
struct ArrayDigest {
  std::string label;
  std::string digest;  ///< digest of type, shape and bytes
};

/// Whether what stands at `path` is part of the state: model, optimizer, schedulers, scaler, averages, sampler
/// position. Configuration, lineage, generators of single ranks and the layout of buckets are not. In a file of another
/// program everything is.
bool is_state(const InspectedFile& source, const std::string& path);

/// The arrays of the state, by label.
std::vector<ArrayDigest> array_digests(const InspectedFile& source);

/// One digest over names and digests of all of `arrays`, and the attributes of the state: equal runs have equal ones,
/// whatever wrote the file, in which order, and on how many ranks.
std::string state_digest(const InspectedFile& source, const std::vector<ArrayDigest>& arrays);

}  // namespace lockstep::ckpt
