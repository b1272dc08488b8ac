// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/data/transform.hpp>

#include <string>
#include <vector>

#include "config/config.hpp"
#include "trainer/commands/commands.hpp"

namespace lockstep::trainer {

/// Sets the keys for which `data.augmentation` stands, unless they are set: data.transform, data.val_transform and
/// train.mix.
/// @param normalize  line that replaces the line `normalize` of the augmentation; empty = none
/// @throws ConfigError  the augmentation is unknown
void expand_augmentation(config::Config& config, const std::string& normalize = "");

/// Sets data.val_transform to the lines that data::evaluation_lines derives, unless it is set or there are no lines of
/// data.transform.
/// @throws ConfigError  it cannot be derived
void derive_val_transform(config::Config& config, const std::vector<data::TransformRow>& rows);

/// Sets an empty data.val_transform of a stored configuration as earlier versions understood it: the lines of
/// data.transform that convert to float32.
/// @param checkpoint  with the configuration; other origins of data.transform are left alone
void keep_former_val_transform(config::Config& config, const std::vector<data::TransformRow>& rows,
                               const std::string& checkpoint);

/// Sets the keys for which `model.from` stands, unless they are set: model.name and the sizes of the model, init.from,
/// and for a folder of timm the transforms of images and their number of channels. Rank 0 reads. Collective.
/// @return  the line `normalize` with the statistics of the folder; empty = it states none
/// @throws ConfigError      model.name is another model; on every rank
/// @throws CheckpointError  the folder or file is malformed, or its model is unknown; on every rank
std::string expand_model_from(const CommandJob& job, config::Config& config);

/// The teacher of loss.name=distill, where distill.from names a run or one of its checkpoints: replaces it by the path
/// of the checkpoint, and sets distill.model to the stored model unless it is given. A run that resumes with its
/// resolved configuration then has the same teacher. Collective.
/// @throws ConfigError      see engine::has_teacher; on every rank
/// @throws CheckpointError  there is no checkpoint, or it cannot be read; on every rank
void settle_teacher(const CommandJob& job, config::Config& config);

}  // namespace lockstep::trainer
