// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>
#include <string_view>

/// Names from files in messages.
namespace lockstep::checkpoints {

/// "tensor 'a'", safe to print.
std::string quoted(const std::string& kind, const std::string& name);

}  // namespace lockstep::checkpoints
