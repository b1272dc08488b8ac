// SPDX-License-Identifier: BSD-3-Clause
#include "core/system/version.hpp"

namespace lockstep {

const std::string& version() {
  static const std::string text = LOCKSTEP_VERSION;
  return text;
}

}  // namespace lockstep
