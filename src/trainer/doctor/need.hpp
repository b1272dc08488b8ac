// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>

#include "engine/workload.hpp"
#include "trainer/doctor/facts.hpp"

namespace lockstep::trainer {

/// The needs of a configuration on CPUs. Opens the data, as training does. Not collective.
/// @param shape  ranks and hosts of this job
NeedFacts need_of(const Sections& sections, const engine::Registry& registry, const engine::JobShape& shape);

}  // namespace lockstep::trainer
