// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// What an exception says, without the stack that LibTorch puts below it; with TORCH_SHOW_CPP_STACKTRACES=1 in the
/// environment all of it, as in PyTorch.
std::string message_of(const std::exception& error);

}  // namespace lockstep
