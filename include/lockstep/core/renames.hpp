// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Rules FROM, TO that rename tensors of other programs and parameters of checkpoints; they apply one after another,
/// each to the name that the one before it made. A FROM that begins with "re:" is a regular expression.
using Renames = std::vector<std::pair<std::string, std::string>>;

}  // namespace lockstep
