// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::engine {

/// The registry that a configuration chooses from. Defined in registry.hpp, for programs that add rows of their own.
struct Registry;
/// Only the built-in rows.
const Registry& builtin_registry();

}  // namespace lockstep::engine
