// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

#include "config/config.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

/// Sets the keys for which `model.from` stands, unless they are set: model.name and the sizes of the model, init.from,
/// and for a folder of timm the transforms of images and their number of channels. Rank 0 reads. Collective.
/// @return  the line `normalise` with the statistics of the folder; empty = it states none
/// @throws ConfigError      model.name is another model; on every rank
/// @throws CheckpointError  the folder or file is malformed, or its model is unknown; on every rank
std::string expand_model_from(const CommandJob& job, config::Config& config);

}  // namespace lockstep::trainer
