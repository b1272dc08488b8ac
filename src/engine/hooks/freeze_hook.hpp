// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/engine/hook.hpp>

#include <memory>

#include "engine/setup/finetune.hpp"

namespace lockstep::engine {

/// Holds parameters until they join the training, and keeps the blocks that the patterns name in evaluation mode
/// meanwhile.
std::unique_ptr<Hook> freeze_hook(Unfreezing unfreezing);

}  // namespace lockstep::engine
