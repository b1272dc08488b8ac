// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep {

/// Makes a failed write to a pipe or to a closed standard stream an error of this write. SIGPIPE is ignored, and closed
/// standard streams are opened so that no other file gets their number: what is written to standard output then fails.
/// Call it before any file is opened.
void guard_standard_streams() noexcept;

}  // namespace lockstep
