// SPDX-License-Identifier: BSD-3-Clause
#pragma once

namespace lockstep::trainer {

/// USR2, TERM, XCPU and HUP request a stop; however often they come, it is one request. INT asks, too; a second one
/// within 5 s leaves at once with code 130. INT and HUP stay ignored where they were ignored when the program started,
/// as a shell does for its jobs in the background and nohup does for its command. PIPE is ignored, see
/// guard_standard_streams. CONT, which launchers send before TERM, does nothing. USR1 belongs to others (NCCL).
void install_signal_handlers();

/// The handler for a command that cannot be continued: any of these signals ends it as it ends most programs.
void leave_on_signals();

}  // namespace lockstep::trainer
