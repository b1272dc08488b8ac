// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string>

namespace lockstep {

/// The version of Lockstep, such as "0.1.0", as CMakeLists.txt states it.
const std::string& version();

}  // namespace lockstep
