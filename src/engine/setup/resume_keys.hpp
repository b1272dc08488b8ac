// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <lockstep/core/key_spec.hpp>

namespace lockstep::engine {

/// Key `resume`, and the keys of sections `init` and `resume`.
KeySpecs resume_keys();

}  // namespace lockstep::engine
