// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

namespace lockstep::engine {

struct Registry;

/// Checks the rows of a program beside the built-in ones: names are unique, rows have their functions, and a key that
/// has two owners has the same type, default and range in both. Built-in rows may share keys.
/// @param more  keys of the program that belong to no row
/// @throws ConfigError  states both owners. Not collective: the result is the same on every rank
void check_registry(const Registry& registry, const KeySpecs& more);

}  // namespace lockstep::engine
