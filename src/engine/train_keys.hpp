// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include "engine/settings/builtin_registry.hpp"

namespace lockstep::engine {

/// The keys of section `train`, of each part that it configures, without those of the steps' own.
KeySpecs train_keys(const Registry& registry);

}  // namespace lockstep::engine
