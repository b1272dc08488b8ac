// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/keys.hpp>
#include <lockstep/data/dataset.hpp>

#include <memory>
#include <string>

#include "core/keys/cited.hpp"
#include "data/source/rollout.hpp"

namespace lockstep::engine {

/// The keys train.rollout and train.rollout_gradient.
KeySpecs rollout_keys();

/// A data set whose samples go on in time. Not collective.
/// @param cited  the setting that asks for it, for messages
/// @throws ConfigError  the samples do not go on
std::shared_ptr<const data::Dataset> rolled_out(const data::Dataset& dataset, const data::RolloutRule& rule,
                                                const std::string& cited);

/// A data set whose samples have the value "climatology". Not collective.
/// @param choice  eval.climatology
/// @throws ConfigError, DataError  the samples are no fields, or the climatology does not fit them
std::shared_ptr<const data::Dataset> with_climatology(const data::Dataset& dataset, const Cited<std::string>& choice);

/// The data set that a run trains on: `dataset` itself, or rolled out by train.rollout.
/// @throws ConfigError  see rolled_out; train.rollout is given together with train.metrics or eval.split=train
std::shared_ptr<const data::Dataset> trained_dataset(std::shared_ptr<const data::Dataset> dataset,
                                                     const Sections& sections);

}  // namespace lockstep::engine
