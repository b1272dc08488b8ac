// SPDX-License-Identifier: BSD-3-Clause
#include "commands.hpp"

namespace lockstep::ckpt {

Exit convert(const Request&) { throw usage_error("convert: not built in yet"); }

}  // namespace lockstep::ckpt
