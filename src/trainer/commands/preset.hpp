// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "config/config.hpp"

namespace lockstep::trainer {

/// Sets the keys for which `data.preset` stands, unless they are set: data.transform, data.val_transform, data.repeats,
/// train.mix, loss.name and loss.label_smoothing.
/// @param normalise  line that replaces the line `normalise` of a preset; empty = none
/// @throws ConfigError  the preset is unknown
void expand_preset(config::Config& config, const std::string& normalise = "");

}  // namespace lockstep::trainer
