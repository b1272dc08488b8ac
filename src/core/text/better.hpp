// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include <optional>
#include <string>

namespace lockstep {

/// The direction of a metric: which of two values is better.
enum class Better { lower, higher };

/// The direction by the words in a metric's name, in any case: "val/loss" -> lower, "mAP_50" -> higher. None if there
/// is no known word, or words of both kinds.
std::optional<Better> better_by_name(const std::string& metric);

/// The direction that a key says: lower, higher, or auto, which is better_by_name.
/// @param metric_key, better_key  their names in the message
/// @throws ConfigError  auto, and the name does not determine the direction
Better chosen_better(const std::string& metric, const std::string& better, const std::string& metric_key,
                     const std::string& better_key);

/// The key `name`, which says whether lower or higher values of a metric are better.
/// @param former_name  key of earlier versions with the values auto, less and greater
KeySpec better_key(const std::string& name, const std::string& former_name);

}  // namespace lockstep
