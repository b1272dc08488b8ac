// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/core/keys.hpp>

#include <string>

#include "engine/state/resume_settings.hpp"

namespace lockstep::engine {

/// Key `rename` of a section.
/// @throws ConfigError  see parse_renames
Renames renames_of(const Section& section);

/// The archive with other names for its parameters and buffers, also where the optimizer, the average and the buckets
/// name them.
checkpoints::Archive renamed(const checkpoints::Archive& archive, const Renames& renames);

}  // namespace lockstep::engine
