// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/checkpoints/archive.hpp>
#include <lockstep/optim/optim_wrapper.hpp>

#include <string>

namespace lockstep::engine {

inline const std::string kScaler = "/scaler";

/// Puts the state of loss scaling below `group`, if there is any. Not collective.
void capture_scaler(checkpoints::Archive& archive, const std::string& group, const optim::OptimWrapper& optimizer);

/// Takes it back; without one in the archive it begins anew, which the log says. Not collective.
/// @throws CheckpointError  what is there is no state of loss scaling
void restore_scaler(optim::OptimWrapper& optimizer, const checkpoints::Archive& archive, const std::string& group);

}  // namespace lockstep::engine
