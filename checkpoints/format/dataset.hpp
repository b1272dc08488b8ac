// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoints/format/hdf5.hpp"

/// The requirements that both readers of HDF5 ask of a data set before they believe it. Errors have no path; callers
/// add it.
namespace lockstep::checkpoints {

/// "'name'", safe to print.
std::string in_quotes(const std::string& name);

/// The dimensions of a data set; none of a scalar.
/// @throws CheckpointError  it has no shape
std::vector<std::int64_t> shape_of(hid_t set);

/// That the bytes lie in this file, and not where a link leads.
/// @param list  the data set's creation list
/// @throws CheckpointError  refused: they lie in another file, or are those of other arrays; with their names
void require_own_storage(hid_t list);

}  // namespace lockstep::checkpoints
