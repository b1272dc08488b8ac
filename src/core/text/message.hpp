// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <exception>
#include <string>

namespace lockstep {

/// The message of an exception without the stack of LibTorch; with TORCH_SHOW_CPP_STACKTRACES=1 in the environment all
/// of it, as in PyTorch.
std::string message_of(const std::exception& error);

}  // namespace lockstep
